"""XMPP servers with the configurations of docs/ejabberd.md and docs/prosody.md. Must not know what passes through them."""

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Final, Protocol, Self

from frontends.tools.servers import conversation
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import Process, Server, ServerError, free_port, free_ports
from tests.certificates import Authority
from tests.federation import pages

SECRET: Final = "SECRET"  # as the pages have it


class PageServer(Protocol):
    """A server as its page configures it, for one domain."""

    page: str
    site: str
    directory: Path
    c2s_port: int
    s2s_port: int
    component_port: int

    def add_accounts(self) -> None:
        """Register the accounts of the page."""

    def start(self) -> Self:
        """Start it."""

    def stop(self) -> None:
        """Stop it in order."""

    def kill(self) -> None:
        """Kill it."""

    def __enter__(self) -> Self:
        """Start it, and end it with the block."""

    def __exit__(self, *_: object) -> None:
        """End it."""


class PageEjabberd(Ejabberd):
    """The ejabberd of docs/ejabberd.md, for a domain."""

    page = "ejabberd.md"

    def __init__(self, directory: Path, site: str, authority: Authority, dns_port: int = 0, *, more: str = "") -> None:
        """Choose the domain of its accounts, who certifies it, and where it asks for names (0: nowhere).

        `more` is added to the page's configuration.
        """
        super().__init__(directory)
        self._more = more
        directory.mkdir(parents=True)
        self.site, self.s2s_port, self._commands_port = site, free_port(), free_port()
        certificate, key = authority.sign(site, site, f"queue.{site}")
        (directory / "site.pem").write_text(certificate.read_text() + key.read_text())
        self._authority = authority
        if dns_port:
            lines = f'{{resolv_conf, ""}}. {{lookup, [dns]}}. {{nameserver, {{127,0,0,1}}, {dns_port}}}.\n'
            (directory / "inetrc").write_text(lines)
            self._environment["ERL_INETRC"] = str(directory / "inetrc")

    def _configuration(self) -> str:
        of_commands = f"{{port: {self._commands_port}, ip: 127.0.0.1, module: ejabberd_http"
        commands = f"{of_commands}, request_handlers: {{/api: mod_http_api}}}}"
        allowed = "api_permissions: {test: {from: [mod_http_api], who: all, what: '*'}}"
        return self._more + pages.replaced(
            pages.block("ejabberd.md", "yaml"),
            ("example.org", self.site),
            ("/etc/ejabberd/certs/*.pem", f"{self.directory}/site.pem"),
            ("5222", str(self.c2s_port)),
            ("5269", str(self.s2s_port)),
            ("5347", str(self.component_port)),
            ('"::"', '"127.0.0.1"'),
            ("listen:\n", f"ca_file: {self._authority.certificate}\n{allowed}\nlisten:\n  - {commands}\n"),
        )

    def command(self, name: str, **arguments: str) -> str:
        """Call a command of ejabberdctl, as the page does."""
        url = f"http://127.0.0.1:{self._commands_port}/api/{name}"
        with urllib.request.urlopen(url, json.dumps(arguments).encode(), timeout=30) as answer:
            return str(json.load(answer))

    def add_accounts(self) -> None:
        """Register the accounts of the page."""
        for command, *words in pages.commands("ejabberd.md", "ejabberdctl"):
            if command == "register":
                user, host, password = words
                self.command("register", user=user, host=host.replace("example.org", self.site), password=password)

    def _ready(self) -> bool:
        return conversation.client_welcome(self.c2s_port, self.site) and conversation.component_accepted(
            self.component_port, f"probe.{self.site}", SECRET
        )


class PageProsody(Server):
    """The Prosody of docs/prosody.md, for a domain."""

    _ready_seconds = 60.0

    page = "prosody.md"

    def __init__(self, directory: Path, site: str, authority: Authority, dns_port: int = 0) -> None:
        """Choose the domain of its accounts, who certifies it, and where it asks for names (0: nowhere)."""
        super().__init__(directory, "prosody")
        for part in ("certs", "data"):
            (directory / part).mkdir(parents=True)
        self.site, self._authority, self._dns_port = site, authority, dns_port
        self.c2s_port, self.s2s_port, self.component_port = free_ports(3)
        for file, ending in zip(authority.sign(site, site, f"queue.{site}"), ("crt", "key"), strict=True):
            shutil.copy(file, directory / "certs" / f"{site}.{ending}")

    def _launch(self) -> Process:
        self._configured().write_text(self._configuration())
        command = [_prosody("prosody"), "-F", "--config", str(self._configured())]
        return Process(command, directory=self.directory, log=self.directory / "console.log")

    def _configured(self) -> Path:
        return self.directory / "prosody.cfg.lua"

    def _configuration(self) -> str:
        here = {
            "run_as_root": "true",
            "ssl": f'{{ cafile = "{self._authority.certificate}"; capath = "/nowhere"; }}',
            "use_libevent": "false",
        }
        if self._dns_port:
            here["unbound"] = (
                f'{{ resolvconf = false; hoststxt = false; forward = {{ "127.0.0.1@{self._dns_port}" }};'
                ' options = { ["do-not-query-localhost:"] = "no" } }'
            )
        own = "".join(f"{name} = {value}\n" for name, value in here.items())
        return own + pages.replaced(
            pages.block(self.page, "lua"),
            ("example.org", self.site),
            ("/run/prosody/prosody.pid", f"{self.directory}/pid"),
            ("/var/lib/prosody", f"{self.directory}/data"),
            ("/etc/prosody/certs", f"{self.directory}/certs"),
            ("/var/log/prosody/prosody.log", f"{self.directory}/prosody.log"),
            ("5222", str(self.c2s_port)),
            ("5269", str(self.s2s_port)),
            ("5347", str(self.component_port)),
            ('{ "*", "::" }', '{ "127.0.0.1" }'),
        )

    def add_accounts(self) -> None:
        """Register the accounts of the page."""
        for command, *words in pages.commands(self.page, "prosodyctl"):
            if command == "register":
                given = [word.replace("example.org", self.site) for word in words]
                line = [_prosody("prosodyctl"), "--root", "--config", str(self._configured()), command, *given]
                subprocess.run(line, check=True, capture_output=True, timeout=60, cwd=self.directory)

    def _ready(self) -> bool:
        return conversation.client_welcome(self.c2s_port, self.site) and conversation.component_accepted(
            self.component_port, f"queue.{self.site}", SECRET
        )


def _prosody(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        msg = "prosody is missing: apt-get install prosody lua-unbound"
        raise ServerError(msg)
    return found
