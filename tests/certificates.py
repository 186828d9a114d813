"""Certificates for servers and clients of a test, made by openssl. Must not know who presents them to whom."""

import subprocess
from collections.abc import Mapping
from pathlib import Path


class Authority:
    """A certificate authority; all its files are in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        """Create its own certificate."""
        directory.mkdir()
        self._directory = directory
        self.certificate = directory / "ca.crt"
        self._openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority"
            " -keyout ca.key -out ca.crt"
        )

    def sign(self, name: str, *domains: str, client: bool = False) -> tuple[Path, Path]:
        """Create a certificate for a server at 127.0.0.1 or of domains, or a client; return it and its key.

        A certificate of domains is for servers only, as public authorities issue it, unless it is for a `client` too.
        """
        names = [f"DNS:{domain}" for domain in domains] or ["IP:127.0.0.1"]
        usage = "extendedKeyUsage=serverAuth\n" if domains and not client else ""
        (self._directory / f"{name}.ext").write_text(f"subjectAltName={','.join(names)}\n{usage}")
        self._openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
            f" -subj /CN={name} -keyout {name}.key -out {name}.csr"
        )
        self._openssl(
            f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile {name}.ext -out {name}.crt"
        )
        return self._directory / f"{name}.crt", self._directory / f"{name}.key"

    def server(self, *, clients: bool) -> Mapping[str, str]:
        """Return lines of redis.conf for TLS with a certificate of this authority, with or without client certificates."""
        certificate, key = self.sign("server")
        return {
            "tls-cert-file": str(certificate),
            "tls-key-file": str(key),
            "tls-ca-cert-file": str(self.certificate),
            "tls-auth-clients": "yes" if clients else "no",
        }

    def _openssl(self, words: str) -> None:
        subprocess.run(["openssl", *words.split()], cwd=self._directory, check=True, capture_output=True, timeout=30)
