"""Settings from the environment and a TOML file, checked once, then frozen. Must not know who uses them.

Each is `STANZAQ_NAME` in the environment, `name` in the TOML file; the environment wins. A setting that may hold a secret is
also read from the file that `STANZAQ_NAME_FILE` names, as orchestrators mount them, and is never shown; and so is the list
of roles.
"""

import os
import re
import ssl
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from broker.address import Address, read_address
from broker.amqp_settings import AmqpSettings
from broker.http_settings import HttpSettings
from broker.keys import PREFIX as PREFIX_OF_KEYS
from broker.model.names import Jid, is_jid, read_account_or_domain, read_bare_jid, read_jid
from broker.model.nodes.options import AccessModel, NodeConfig
from broker.model.roles import Role, read_roles
from broker.redis_url import add_sentinel_login, check_url, read_url
from broker.token_settings import TokenSettings, is_safe

PREFIX: Final = "STANZAQ_"

_ONE_LINE: Final = ("redis_url", "redis_sentinel_username", "redis_sentinel_password", "xmpp_secret")

_SECRETS: Final = (
    *_ONE_LINE,
    "http_passwords",
    "jwt_keys",
    "amqp_passwords",
    "amqp_event_hubs_keys",
)

_FROM_FILES: Final = (*_SECRETS, "roles", "jwt_roles")


_SERVICE: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
"""Variables that Kubernetes sets in a pod for a service called `stanzaq…`, besides `…_PORT` with a URL."""

_OF_THE_LIBRARY: Final = frozenset({"STANZAQ_PASSWORD", "STANZAQ_URL"})
"""Variables of workers and publishers, which may run in the same environment."""

_Kind = TypeVar("_Kind", bound=BaseSettings)


class SettingsError(Exception):
    """Settings that cannot be used: one sentence for each problem."""

    def __init__(self, *problems: str) -> None:
        """Keep the sentences."""
        super().__init__("\n".join(problems))
        self.problems = problems


class LogFormat(Enum):
    """Whether a person or a program reads the log."""

    CONSOLE = "console"
    JSON = "json"


class NodeCreation(Enum):
    """Who may create nodes, besides administrators."""

    ANYONE = "anyone"
    LOCAL = "local"
    ADMINS = "admins"


def _domain(value: object) -> object:
    if isinstance(value, str) and (not is_jid(value) or any(mark in value for mark in "@/")):
        msg = f"{value[:80]!r} is not a domain name"
        raise ValueError(msg)
    return value.lower() if isinstance(value, str) else value


def _secret(value: SecretStr) -> SecretStr:
    if not value.get_secret_value():
        msg = "is empty"
        raise ValueError(msg)
    return value


def _list_of(read: Callable[[str], Jid]) -> BeforeValidator:
    """Make a validator of JIDs that are separated by commas, or a list in a file; `read` reads each."""

    def split_list(value: object) -> object:
        words = [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value
        return tuple(read(str(word)) for word in words) if isinstance(words, list) else words

    return BeforeValidator(split_list)


def _read_domain(value: str) -> Jid:
    if "@" in value or not is_jid(value):
        msg = f"{value[:80]!r} is not a domain name"
        raise ValueError(msg)
    return read_account_or_domain(value)


def _read_roles(value: object) -> object:
    return read_roles(value) if isinstance(value, str) else value


def _check_roles(roles: Mapping[Jid, Role], info: ValidationInfo) -> Mapping[Jid, Role]:
    """Refuse a role of an administrator: it may do everything anyway, so one of the two is a mistake."""
    if twice := next((jid for jid in info.data.get("admins", ()) if jid in roles), None):
        msg = f"{twice} is one of ADMINS and has a role besides: keep one"
        raise ValueError(msg)
    return roles


def _jid(value: object) -> object:
    return read_jid(value) if isinstance(value, str) else value


class Packaging(StrEnum):
    """How Redis is given the operations: as functions, as scripts, or as the first of these that it accepts."""

    AUTO = "auto"
    FUNCTIONS = "functions"
    SCRIPTS = "scripts"


def _add_sentinel_login(url: str, info: ValidationInfo) -> str:
    username, password = info.data.get("redis_sentinel_username", ""), info.data.get("redis_sentinel_password")
    return add_sentinel_login(url, username=username, password=password.get_secret_value() if password else "")


class RedisSettings(BaseSettings):
    """Redis and its options: all settings of commands that only inspect it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True)

    redis_sentinel_username: str = Field(
        default="", description="the user for the sentinels of redis+sentinel://; not set: their default user"
    )
    redis_sentinel_password: SecretStr = Field(
        default=SecretStr(""), description="the password for the sentinels; not set: they require none"
    )
    redis_url: Annotated[str, BeforeValidator(check_url), AfterValidator(_add_sentinel_login)] = Field(
        default="redis://127.0.0.1:6379/0",
        repr=False,
        description="redis://, rediss://, unix:// or embedded://[DIRECTORY], e.g. redis://127.0.0.1:6379/0;"
        " redis+cluster://HOST:PORT,HOST:PORT for a cluster, redis+sentinel://HOST:PORT,HOST:PORT/SERVICE for a"
        " master that sentinels watch; rediss+… for TLS",
    )
    key_prefix: str = Field(
        default=PREFIX_OF_KEYS,
        pattern=r"^[a-z][a-z0-9]{0,9}$",
        description="what all keys in Redis begin with: one of its own for each service that shares a Redis, e.g. sq",
    )
    redis_timeout: float = Field(
        default=2.0, gt=0, le=60, description="seconds that Redis may take to answer, e.g. 2.0"
    )
    redis_replicas: int = Field(
        default=1,
        ge=1,
        le=5,
        description="replicas of each master, all of which must have a publish that stanzaq#confirm makes replicated, e.g. 1",
    )
    redis_packaging: Packaging = Field(
        default=Packaging.AUTO,
        description="auto, functions or scripts: how operations are loaded into Redis; auto uses scripts where"
        " functions are missing or forbidden",
    )
    allow_eviction: bool = Field(
        default=False,
        description="true or false: serve even if Redis may evict keys (a maxmemory-policy other than noeviction)",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  (the library's signature, here and below)
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what is given alone: `load` reads the environment of a service, which a bench or a test must not use."""
        return (init_settings,)


class Settings(AmqpSettings, HttpSettings, TokenSettings, RedisSettings):
    """All settings; the description of each says what to write."""

    xmpp_server: Annotated[Address, NoDecode, BeforeValidator(read_address)] = Field(
        default=Address("127.0.0.1", 5347), description="where the XMPP server accepts components, e.g. 127.0.0.1:5347"
    )
    xmpp_tls: bool = Field(
        default=False,
        description="true or false: speak TLS to the XMPP server from the first byte; its certificate must be for the host of"
        " XMPP_SERVER",
    )
    xmpp_ca: Path | None = Field(
        default=None, description="a file with the authorities in PEM of that certificate; not set: the system's"
    )
    xmpp_domain: Annotated[str, BeforeValidator(_domain)] = Field(
        description="the component's domain, e.g. queue.example.org"
    )
    xmpp_secret: Annotated[SecretStr, AfterValidator(_secret)] = Field(
        description="the secret that the XMPP server expects of the component"
    )
    admins: Annotated[tuple[Jid, ...], NoDecode, _list_of(read_bare_jid)] = Field(
        default=(), description="bare JIDs, separated by commas, e.g. romeo@example.org,juliet@example.org"
    )
    audit: bool = Field(
        default=False,
        description="true or false: write each administrative change into the log stanzaq/audit; the same for all frontends and"
        " commands of a service",
    )
    roles: Annotated[Mapping[Jid, Role], NoDecode, BeforeValidator(_read_roles), AfterValidator(_check_roles)] = Field(
        default={},
        description="lines of JID ROLE, an account or a domain and one of viewer, operator and admin, e.g."
        " juliet@example.org operator; not set: only ADMINS administrate",
    )
    metrics_bind: Annotated[Address | None, NoDecode, BeforeValidator(read_address)] = Field(
        default=None,
        description="where to serve /livez, /readyz and /metrics, e.g. 127.0.0.1:9464, or [::]:9464 for all addresses;"
        " not set: nowhere",
    )
    log_format: LogFormat = Field(default=LogFormat.CONSOLE, description="console or json")
    traces: bool = Field(
        default=False,
        description="true or false: export spans of each item by OTLP, configured by OTEL_… (needs the extra otel)",
    )
    trusted_domains: Annotated[tuple[Jid, ...], NoDecode, _list_of(_read_domain)] = Field(
        default=(),
        description="domains whose accounts are trusted as those of the domain above the component's, separated by commas,"
        " e.g. example.com",
    )
    node_creation: NodeCreation = Field(
        default=NodeCreation.LOCAL,
        description="who may create nodes, besides administrators: anyone; local, which are accounts of the domain above"
        " the component's and of TRUSTED_DOMAINS, and those that log in over HTTP or AMQP; or admins, for nobody else",
    )
    default_access_model: AccessModel = Field(
        default=AccessModel.WHITELIST,
        description="who may subscribe to a new node, unless its creator says it: whitelist, only those that an owner"
        " admits; authorize, those that an owner approves; or open, everybody",
    )
    node_quota: int = Field(default=100, ge=0, le=1_000_000, description="most nodes that one owner may have, e.g. 100")
    partition_quota: int = Field(
        default=1_024,
        ge=0,
        le=100_000_000,
        description="most partitions that the nodes of one owner may have together, e.g. 1024",
    )
    default_queueing: bool = Field(default=True, description="true or false: whether a node is a queue by default")
    qos_retry_seconds: float = Field(
        default=5.0,
        ge=0.1,
        le=3600,
        description="seconds until an unconfirmed delivery is sent again, e.g. 5",
    )
    qos_retry_most_seconds: float = Field(
        default=20.0,
        ge=0.1,
        le=3600,
        description="most seconds between two attempts; the pause doubles each time, e.g. 20",
    )
    qos_retries: int = Field(
        default=3, ge=0, le=20, description="how often it is sent again before its lock is ended, e.g. 3"
    )
    journal_records: int = Field(
        default=10_000,
        ge=100,
        le=100_000_000,
        description="records that a partition's journal keeps, about 160 bytes each, for at most a week, e.g. 10000",
    )
    watchdog_seconds: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="seconds after which a process with a hung event loop is killed, e.g. 10",
    )
    drain_seconds: float = Field(
        default=5.0, ge=0, le=600, description="seconds for a graceful shutdown after SIGTERM, e.g. 5"
    )
    legacy_unlock_ns: bool = Field(
        default=False, description="true: unlock notifications in the namespace of XEP-0254's examples (QX4)"
    )
    strict_iq_type: bool = Field(
        default=False, description="true: refuse retract and unlock in an IQ of type get (QX1)"
    )

    qos_trusted: Annotated[tuple[Jid, ...], NoDecode, _list_of(read_account_or_domain)] = Field(
        default=(),
        description="domains and bare JIDs that may send assured messages, separated by commas, e.g."
        " example.org,bot@example.com; not set: the domain above the component's and TRUSTED_DOMAINS",
    )
    qos_window_seconds: float = Field(
        default=7200.0,
        gt=0,
        le=604_800,
        description="seconds that an assured message is stored, and its delivery remembered, e.g. 7200",
    )
    qos_source_messages: int = Field(
        default=100, ge=1, le=1_000_000, description="most assured messages stored for one bare JID, e.g. 100"
    )
    qos_source_bytes: int = Field(
        default=1_048_576, ge=1, description="most bytes of assured messages stored for one bare JID, e.g. 1048576"
    )
    qos_total_messages: int = Field(
        default=100_000, ge=1, description="most assured messages stored in all, e.g. 100000"
    )
    qos_total_bytes: int = Field(
        default=268_435_456, ge=1, description="most bytes of assured messages stored in all, e.g. 268435456"
    )
    qos_remembered: int = Field(
        default=1_000_000, ge=1, description="most deliveries of assured messages remembered at once, e.g. 1000000"
    )
    reservation_seconds: float = Field(
        default=300.0, gt=0, le=86_400, description="seconds that a reservation is valid, e.g. 300"
    )
    event_log: Annotated[Jid | None, BeforeValidator(_jid)] = Field(
        default=None, description="a JID that gets events of invalid use of QoS (XEP-0337); not set: none"
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown: secret, hashes, keys; passwords of Redis and sentinels, plain and URL-encoded."""
        url = "" if self.redis_url.startswith("embedded:") else self.redis_url
        read = [read_url(url).options, read_url(url).sentinel_options] if url else []
        passwords = [str(options.get("password") or "") for options in read]
        hashes = (line.rpartition(":")[2] for line in self.http_passwords.get_secret_value().split())
        encoded = (quote(each, safe="") for each in passwords)
        return self.xmpp_secret.get_secret_value(), *passwords, *encoded, *hashes, *self.amqp_secrets

    def xmpp_context(self) -> ssl.SSLContext | None:
        """Return what TLS to the XMPP server needs, None without TLS; raises OSError for authorities that cannot be read."""
        return ssl.create_default_context(cafile=self.xmpp_ca) if self.xmpp_tls else None

    @property
    def local_domains(self) -> frozenset[Jid]:
        """The domains whose accounts are local: the one above the component's, and the trusted ones."""
        return frozenset({Jid(self.xmpp_domain.partition(".")[2]), *self.trusted_domains} - {""})

    @property
    def node_defaults(self) -> NodeConfig:
        """The configuration of a node whose creator says nothing."""
        return NodeConfig(queueing=self.default_queueing, access_model=self.default_access_model)

    @property
    def retry(self) -> str:
        """The `qos_` settings as operations read them: first and longest pause in ms, and the number of retries."""
        return f"{self.qos_retry_seconds * 1000:.0f} {self.qos_retry_most_seconds * 1000:.0f} {self.qos_retries}"


class CommandSettings(Settings):
    """Settings of commands that open no door: the door's own may be missing."""

    xmpp_domain: Annotated[str, BeforeValidator(_domain)] = "localhost"
    xmpp_secret: SecretStr = SecretStr("")


def load(config: Path | None = None) -> Settings:
    """Read all sources; raises SettingsError with all problems at once."""
    settings = _read(Settings, _read_given(config))
    if settings.xmpp_ca and not settings.xmpp_tls:
        msg = f"{PREFIX}XMPP_CA is for TLS. Set {PREFIX}XMPP_TLS=true."
        raise SettingsError(msg)
    try:
        settings.xmpp_context()
    except OSError as fault:
        msg = f"{PREFIX}XMPP_CA: {settings.xmpp_ca} has no certificates in PEM: {fault}"
        raise SettingsError(msg) from fault
    return settings


def load_redis(config: Path | None = None) -> RedisSettings:
    """Read the settings of Redis from the same sources; raises SettingsError likewise."""
    given = _read_given(config)
    return _read(RedisSettings, {name: given[name] for name in RedisSettings.model_fields.keys() & given.keys()})


def _lacking_of_tokens(settings: Settings) -> list[str]:
    """Say what is missing for tokens, if they are taken."""
    if not settings.jwt_keys or (settings.jwt_issuer and settings.jwt_audience):
        return []
    needed = f"Set {PREFIX}JWT_ISSUER and {PREFIX}JWT_AUDIENCE."
    return [f"{PREFIX}JWT_KEYS: tokens are taken from one issuer, for one audience. {needed}"]


def load_rest(config: Path | None = None) -> CommandSettings:
    """Read the settings of the HTTP door from the same sources; raises SettingsError likewise."""
    settings = load_command(config)
    lacking = _lacking_of_tokens(settings)
    if settings.page_client and not (settings.jwt_keys and is_safe(settings.jwt_issuer)):
        lacking.append(
            f"{PREFIX}PAGE_CLIENT: people sign in at an issuer whose tokens are taken."
            f" Set {PREFIX}JWT_KEYS, and {PREFIX}JWT_ISSUER as an https URL."
        )
    if not (settings.jwt_keys or settings.http_anonymous or settings.http_passwords.get_secret_value()):
        lacking.append(
            f"Nobody may ask anything. Set {PREFIX}HTTP_PASSWORDS_FILE or {PREFIX}JWT_KEYS, or {PREFIX}HTTP_ANONYMOUS."
        )
    if lacking:
        raise SettingsError(*lacking)
    return settings


def load_amqp(config: Path | None = None) -> CommandSettings:
    """Read the settings of the AMQP door from the same sources; raises SettingsError likewise."""
    settings = load_command(config)
    lacking = _lacking_of_tokens(settings)
    if settings.amqp_certificate is None and (settings.amqp_key or settings.amqp_client_ca):
        lacking.append(f"TLS has no certificate. Set {PREFIX}AMQP_CERTIFICATE.")
    if not (settings.amqp_client_ca or settings.amqp_anonymous or settings.amqp_secrets or settings.jwt_keys):
        lacking.append(
            f"Nobody may connect. Set {PREFIX}AMQP_PASSWORDS_FILE or {PREFIX}AMQP_CLIENT_CA, or {PREFIX}AMQP_ANONYMOUS,"
            f" or {PREFIX}JWT_KEYS or {PREFIX}AMQP_EVENT_HUBS_KEYS_FILE."
        )
    if settings.amqp_anonymous and settings.amqp_event_hubs_keys.get_secret_value().strip():
        lacking.append(f"{PREFIX}AMQP_ANONYMOUS and {PREFIX}AMQP_EVENT_HUBS_KEYS both take SASL ANONYMOUS: keep one.")
    if lacking:
        raise SettingsError(*lacking)
    return settings


def files_of(settings: Settings, config: Path | None = None) -> list[Path]:
    """Return the files that the settings come from, and those that they name."""
    secrets = [os.environ.get(f"{PREFIX}{name.upper()}_FILE") for name in _FROM_FILES]
    named = [value for _, value in settings if isinstance(value, Path)]
    return [*([config] if config else []), *(Path(each) for each in secrets if each), *named]


def load_command(config: Path | None = None) -> CommandSettings:
    """Read the settings of commands on nodes and items from the same sources; raises SettingsError likewise."""
    return _read(CommandSettings, _read_given(config))


def _read_given(config: Path | None) -> dict[str, Any]:
    given = _file(config) if config else {}
    if unknown := [*_unknown(), *_unknown_in_file(given)]:
        raise SettingsError(*unknown)
    return {**given, **_secret_files()}


def _read(kind: type[_Kind], given: dict[str, Any]) -> _Kind:
    """Make settings of what files give, over which the environment wins; raises SettingsError."""
    values = {**given, **EnvSettingsSource(kind)()}
    if stray := [_sentence((name,), "", fault) for name in _SECRETS if (fault := _stray(name, values.get(name)))]:
        raise SettingsError(*stray)
    try:
        return kind(**values)
    except ValidationError as fault:
        raise SettingsError(
            *(_sentence(error["loc"], error["type"], error["msg"]) for error in fault.errors())
        ) from None


def _stray(name: str, value: object) -> str:
    """Say what an editor or a shell has left at an end of a secret, if it has."""
    if not isinstance(value, str):
        return ""
    if value.startswith("\ufeff"):
        return "it begins with a byte order mark (BOM), which is no part of it: save it as UTF-8 without one"
    if name in _ONE_LINE and value != value.strip():
        return "it begins or ends with a blank: remove that, or write it in a URL as %20"
    return ""


def _file(config: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(config.read_text())
    except (OSError, UnicodeDecodeError) as fault:
        msg = f"--config: {fault}. Name a TOML file that this user may read."
        raise SettingsError(msg) from None
    except tomllib.TOMLDecodeError as fault:
        msg = f"{config}: {fault}. Write one `name = value` a line, with texts in quotes."
        raise SettingsError(msg) from None


def _unknown() -> list[str]:
    """Report variables that look like settings and are not, except the library's and those that Kubernetes sets."""
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {
        f"{PREFIX}{name.upper()}_FILE" for name in _FROM_FILES
    }
    problems = []
    for name in sorted(os.environ):
        # Settings are read from variables of any case.
        if not name.upper().startswith(PREFIX) or name.upper() in known | _OF_THE_LIBRARY:
            continue
        if _of_kubernetes(name, os.environ[name]):
            continue
        near = get_close_matches(name.upper(), known, 1, 0.0)
        problems.append(f"{name}: no such setting. Unset it, or correct it: the nearest is {near[0]}.")
    return problems


def _unknown_in_file(given: dict[str, Any]) -> list[str]:
    """Report names in the file that are not settings, even for a command that reads only a few."""
    names = list(Settings.model_fields)
    return [
        f"{name}: no such setting. Take it out of the file, or correct it:"
        f" the nearest is {get_close_matches(name.lower(), names, 1, 0.0)[0]}."
        for name in sorted(given.keys() - set(names))
    ]


def _of_kubernetes(name: str, value: str) -> bool:
    """Return whether Kubernetes sets the variable in pods for a service called `stanzaq…`."""
    return bool(_SERVICE.fullmatch(name)) or (name.endswith("_PORT") and "://" in value)


def _secret_files() -> dict[str, str]:
    found = {}
    for name in _FROM_FILES:
        variable = f"{PREFIX}{name.upper()}_FILE"
        if variable in os.environ:
            try:
                # Editors and `echo` end a file with a newline that is not part of the secret.
                found[name] = Path(os.environ[variable]).read_text().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as fault:
                msg = f"{variable}: {fault}. Name a text file that this user may read."
                raise SettingsError(msg) from None
    return found


def _sentence(location: tuple[int | str, ...], kind: str, message: str) -> str:
    """Say which setting is wrong, why, and what to do."""
    name = str(location[0])
    field = Settings.model_fields[name]
    wrong = "is not set" if kind == "missing" else message.removeprefix("Value error, ")
    return f"{PREFIX}{name.upper()} ({name} in the file): {wrong}. It takes {field.description}."
