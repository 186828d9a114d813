"""store_quota_use: a measurement replaces an earlier one, and keeps what was let through since it began."""

from tests.lua.driver import T0
from tests.lua.records import Records
from tests.lua.test_meter_quotas import meter, store


def test_replaces(records: Records) -> None:
    """The next measurement replaces this one, and subjects are apart."""
    store(records, "a@x", 4, 40)
    assert meter(records, ("a@x", "9 - 0 0 0", 5)) == ["ok"]
    store(records, "a@x", 2, 20, (1, 5), T0 + 7)
    store(records, "b@x", 1, 1)
    assert records.hash("quota_use")["a@x"] == f"0 1 15 1 5 {T0 + 7} {T0 + 257}"
