"""The transport over HTTP: leases of the RESTful Queue (docs/rest.md)."""
