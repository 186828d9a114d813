"""Settings: where they are read from, and the errors of wrong ones."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.address import Address
from broker.model.nodes.options import AccessModel, NodeConfig
from broker.model.roles import Role
from broker.redis_url import read_url
from broker.settings import (
    CommandSettings,
    LogFormat,
    NodeCreation,
    SettingsError,
    files_of,
    load,
    load_amqp,
    load_command,
    load_redis,
    load_rest,
)
from stanzaq.command.shell import URL
from stanzaq.transport.account import PASSWORD


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with the two settings that have no default, and no other."""
    for name in [name for name in os.environ if name.startswith("STANZAQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("STANZAQ_XMPP_DOMAIN", "queue.example.org")
    monkeypatch.setenv("STANZAQ_XMPP_SECRET", "s3cret")


def _problems(config: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(config)
    return caught.value.problems


def test_defaults() -> None:
    """With domain and secret alone, all else has its default: new nodes are queues (Q1)."""
    settings = load()
    assert settings.redis_url == "redis://127.0.0.1:6379/0"
    assert settings.redis_timeout == 2.0
    assert settings.xmpp_server == Address("127.0.0.1", 5347)
    assert settings.admins == ()
    assert settings.metrics_bind is None
    assert settings.log_format is LogFormat.CONSOLE
    assert (settings.node_creation, settings.default_access_model) == (NodeCreation.LOCAL, AccessModel.WHITELIST)
    assert settings.node_defaults == NodeConfig(access_model=AccessModel.WHITELIST)
    assert (settings.node_quota, settings.default_queueing) == (100, True)
    assert (settings.watchdog_seconds, settings.drain_seconds) == (10.0, 5.0)
    assert settings.retry == "5000 20000 3"
    assert (settings.legacy_unlock_ns, settings.strict_iq_type) == (False, False)
    assert (settings.qos_trusted, settings.event_log, settings.qos_window_seconds) == ((), None, 7200.0)


def test_tls_to_the_xmpp_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 26: authorities without TLS, or that cannot be read, are reported with what to do."""
    wrong = tmp_path / "ca.pem"
    wrong.write_text("no certificate")
    monkeypatch.setenv("STANZAQ_XMPP_CA", str(wrong))
    assert _problems() == ("STANZAQ_XMPP_CA is for TLS. Set STANZAQ_XMPP_TLS=true.",)
    monkeypatch.setenv("STANZAQ_XMPP_TLS", "true")
    (problem,) = _problems()
    assert problem.startswith(f"STANZAQ_XMPP_CA: {wrong} has no certificates in PEM: ")


def test_trusted_and_event_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Domains and bare JIDs are trusted, in the form in which servers write them; anything else is an error (SX12)."""
    monkeypatch.setenv("STANZAQ_QOS_TRUSTED", "Example.org, Bot@example.com,")
    monkeypatch.setenv("STANZAQ_EVENT_LOG", "Ops@example.org/Log")
    settings = load()
    assert settings.qos_trusted == ("example.org", "bot@example.com")
    assert settings.event_log == "ops@example.org/Log"
    monkeypatch.setenv("STANZAQ_TRUSTED_DOMAINS", "Example.com")
    assert load().local_domains == {load().xmpp_domain.partition(".")[2], "example.com"}
    monkeypatch.setenv("STANZAQ_QOS_TRUSTED", "a b")
    monkeypatch.setenv("STANZAQ_EVENT_LOG", "")
    monkeypatch.setenv("STANZAQ_TRUSTED_DOMAINS", "bot@example.com")
    assert len(_problems()) == 3


def test_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TOML file sets what the environment does not."""
    config = tmp_path / "stanzaq.toml"
    config.write_text(
        'redis_url = "unix:///run/redis.sock"\nnode_quota = 7\nadmins = ["Romeo@Example.org"]\nmetrics_bind = "[::1]:9464"\n'
    )
    monkeypatch.setenv("STANZAQ_NODE_QUOTA", "8")
    settings = load(config)
    assert settings.redis_url == "unix:///run/redis.sock"
    assert settings.admins == ("romeo@example.org",)
    assert settings.metrics_bind == Address("::1", 9464)
    assert settings.node_quota == 8


def test_secret_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is read from the file that STANZAQ_…_FILE names, without the newline at its end."""
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    monkeypatch.delenv("STANZAQ_XMPP_SECRET")
    monkeypatch.setenv("STANZAQ_XMPP_SECRET_FILE", str(secret))
    assert load().xmpp_secret.get_secret_value() == "from a file"


def test_secret_files_with_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte order mark or a blank beside a secret is named, without the secret."""
    secret = tmp_path / "secret"
    monkeypatch.delenv("STANZAQ_XMPP_SECRET")
    monkeypatch.setenv("STANZAQ_XMPP_SECRET_FILE", str(secret))
    for text, wrong in (("hunter2 \n", "ends with a blank"), ("\ufeffhunter2\n", "byte order mark")):
        secret.write_text(text)
        (problem,) = _problems()
        assert problem.startswith("STANZAQ_XMPP_SECRET") and wrong in problem and "hunter2" not in problem


def test_login_of_sentinels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentinels' user and password may be in settings of their own, in files too, and the password is never shown."""
    secret = tmp_path / "secret"
    secret.write_text("hunter/2\n")
    monkeypatch.setenv("STANZAQ_REDIS_URL", "redis+sentinel://u:p@a/jobs")
    monkeypatch.setenv("STANZAQ_REDIS_SENTINEL_USERNAME", "watcher")
    monkeypatch.setenv("STANZAQ_REDIS_SENTINEL_PASSWORD_FILE", str(secret))
    login = {"username": "watcher", "password": "hunter/2"}
    for settings in (load(), load_redis()):
        assert read_url(settings.redis_url).sentinel_options == login
        assert "hunter" not in repr(settings)
    assert {"hunter/2", "hunter%2F2"} < set(load().secrets)
    monkeypatch.setenv("STANZAQ_REDIS_URL", "redis://u:p@a")
    (problem,) = _problems()
    assert "it names no sentinels" in problem


def test_secret_file_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret's file that cannot be read is named."""
    monkeypatch.setenv("STANZAQ_XMPP_SECRET_FILE", str(tmp_path / "none"))
    (problem,) = _problems()
    assert problem.startswith("STANZAQ_XMPP_SECRET_FILE: ")
    assert "Name a text file" in problem


def test_admins_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several admins fit into one variable, and come out as servers stamp them."""
    monkeypatch.setenv("STANZAQ_ADMINS", "Romeo@example.org, juliet@EXAMPLE.org,")
    assert load().admins == ("romeo@example.org", "juliet@example.org")


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/1",
        "rediss://u:p@h:1/0",
        "unix:///s?db=1",
        "embedded://",
        "embedded:///data",
        "redis+cluster://a:7000,b,[::1]:7002",
        "rediss+cluster://u:p@a:7000/0?ssl_cert_reqs=none",
        "redis+sentinel://a,b:26380/jobs",
        "rediss+sentinel://:p@[::1]:26379/jobs/3",
    ],
)
def test_redis_urls(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of Redis that this version can reach is accepted as it is written."""
    monkeypatch.setenv("STANZAQ_REDIS_URL", url)
    assert load().redis_url == url


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("redis+cluster://user:hunter2@", "cannot be read"),
        ("redis+cluster://user:hunter2@a,,b", "cannot be read"),
        ("redis+cluster://user:hunter2@a:7000/1", "only database 0"),
        ("redis+cluster://user:hunter2@a:7000/?db=1", "only database 0"),
        ("redis+cluster://user:hunter2@a:port", "cannot be read"),
        ("redis+cluster://user:hunter2@a:0", "cannot be read"),
        ("redis+cluster://user:hunter2@a?hunter2=1", "redis-py does not know"),
        ("redis+cluster://user:hunter2@a?socket_keepalive=perhaps&db=x", "cannot be read"),
        ("redis+sentinel://user:hunter2@a", "does not name the service"),
        ("redis+sentinel://user:hunter2@a//1", "does not name the service"),
        ("redis+sentinel://user:hunter2@a/jobs/one", "cannot be read"),
        ("redis+cluster:user:hunter2@a", "not the URL of a Redis"),
        ("redis+other://user:hunter2@a", "not the URL of a Redis"),
        ("unix+cluster://user:hunter2@a", "not the URL of a Redis"),
        ("redis://user:hunter2@a?nothing=1", "redis-py does not know"),
        ("redis://user:hunter2@a/O3", "cannot be read"),
        ("rediss://user:hunter2@a/1/2", "cannot be read"),
    ],
)
def test_redis_urls_that_are_none(url: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong URL is reported in one sentence, without its password."""
    monkeypatch.setenv("STANZAQ_REDIS_URL", url)
    (problem,) = _problems()
    assert wrong in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("REDIS_URL", "localhost:6379", "not the URL of a Redis"),
        ("REDIS_URL", "http://[", "not the URL of a Redis"),
        ("REDIS_URL", "redis://h:notaport/0", "cannot be read"),
        ("REDIS_URL", "unix://", "names no socket"),
        ("REDIS_URL", "redis://h/0 ", "ends with a blank"),
        ("REDIS_URL", "\ufeffredis://h/0", "byte order mark"),
        ("REDIS_SENTINEL_PASSWORD", "s3cret ", "ends with a blank"),
        ("XMPP_SECRET", "\ts3cret", "begins or ends with a blank"),
        ("HTTP_PASSWORDS", "\ufeffa@b:hash", "byte order mark"),
        ("REDIS_TIMEOUT", "0", "greater than 0"),
        ("REDIS_TIMEOUT", "nan", "less than or equal to 60"),
        ("XMPP_SERVER", "localhost", "'localhost' is not HOST:PORT"),
        ("XMPP_SERVER", "localhost:65536", "is not HOST:PORT"),
        ("XMPP_SERVER", "localhost:" + "9" * 5000, "is not HOST:PORT"),
        ("XMPP_DOMAIN", "someone@example.org", "is not a domain name"),
        ("XMPP_DOMAIN", "", "is not a domain name"),
        ("XMPP_SECRET", "", "is empty"),
        ("XMPP_DOMAIN", "queue..example.org", "is not a domain name"),
        ("ADMINS", "romeo@example.org/phone", "is not a bare JID"),
        ("ADMINS", "romeo@@example.org", "is not a bare JID, e.g. romeo@example.org"),
        ("ROLES", "romeo@example.org king", "line 1 is not JID ROLE: 'king' is none of viewer, operator, admin"),
        ("ROLES", "romeo@example.org", "line 1 is not JID ROLE: it has two words"),
        ("ROLES", "a@b/c viewer", "line 1 is not JID ROLE: 'a@b/c' is neither a bare JID nor a domain"),
        ("ROLES", "a@b viewer\n\nA@b admin", "line 3 names a@b again: an account has one role"),
        ("QOS_TRUSTED", "example.org/phone", "neither a bare JID nor a domain"),
        ("QOS_TRUSTED", "@example.org", "neither a bare JID nor a domain"),
        ("EVENT_LOG", "a@b@c", "is not a JID"),
        ("METRICS_BIND", ":9464", "is not HOST:PORT"),
        ("LOG_FORMAT", "xml", "'console' or 'json'"),
        ("NODE_CREATION", "nobody", "'anyone', 'local' or 'admins'"),
        ("NODE_QUOTA", "-1", "greater than or equal to 0"),
        ("QOS_RETRY_SECONDS", "0", "greater than or equal to 0.1"),
        ("QOS_RETRY_SECONDS", "nan", "less than or equal to 3600"),
        ("QOS_RETRIES", "21", "less than or equal to 20"),
        ("WATCHDOG_SECONDS", "0", "greater than 0"),
        ("STRICT_IQ_TYPE", "perhaps", "valid boolean"),
    ],
)
def test_wrong_values(name: str, value: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence about a wrong value names the setting in both places, the fault, and what it takes."""
    monkeypatch.setenv(f"STANZAQ_{name}", value)
    (problem,) = _problems()
    assert problem.startswith(f"STANZAQ_{name} ({name.lower()} in the file): ")
    assert wrong in problem
    assert " It takes " in problem


def test_roles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Roles are read from a file, of accounts and of domains; an administrator has none besides."""
    file = tmp_path / "roles"
    file.write_text("Juliet@Example.org operator\nexample.org viewer\n")
    monkeypatch.setenv("STANZAQ_ROLES_FILE", str(file))
    settings = load()
    assert settings.roles == {"juliet@example.org": Role.OPERATOR, "example.org": Role.VIEWER}
    assert file in files_of(settings)
    monkeypatch.setenv("STANZAQ_ADMINS", "juliet@example.org")
    (problem,) = _problems()
    assert "juliet@example.org is one of ADMINS and has a role besides: keep one" in problem


@pytest.mark.parametrize("issuer", ["", "http://login.example.org", "login.example.org"])
def test_sign_on_without_tokens(monkeypatch: pytest.MonkeyPatch, issuer: str) -> None:
    """People sign in where nobody reads along, at an issuer whose tokens are taken."""
    given = {"HTTP_ANONYMOUS": "a@b", "PAGE_CLIENT": "page", "JWT_ISSUER": issuer, "JWT_AUDIENCE": "a"}
    for name, value in given.items():
        monkeypatch.setenv(f"STANZAQ_{name}", value)
    with pytest.raises(SettingsError, match="people sign in at an issuer whose tokens are taken"):
        load_rest()


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ("team king", "line 1 is not VALUE ROLE: 'king' is none of viewer, operator, admin"),
        ("viewer", "line 1 names no value"),
        ("a team viewer\na team admin", "line 2 names no value, or one that has a role already"),
    ],
)
def test_wrong_roles_of_tokens(monkeypatch: pytest.MonkeyPatch, lines: str, wrong: str) -> None:
    """A line that gives no role, or two of them to a value, is told by its number."""
    monkeypatch.setenv("STANZAQ_JWT_ROLES", lines)
    (problem,) = _problems()
    assert wrong in problem


def test_everything_wrong_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All missing and wrong settings are reported at once."""
    monkeypatch.delenv("STANZAQ_XMPP_DOMAIN")
    monkeypatch.delenv("STANZAQ_XMPP_SECRET")
    monkeypatch.setenv("STANZAQ_NODE_QUOTA", "many")
    problems = _problems()
    assert len(problems) == 3
    assert sum("is not set" in problem for problem in problems) == 2


@pytest.mark.parametrize("read", [load, load_redis, load_command])
def test_unknown_name_in_file(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """A misspelt name in the file is refused with the nearest name, also by a command that would not read it."""
    config = tmp_path / "stanzaq.toml"
    config.write_text("node_qouta = 7\n")
    with pytest.raises(SettingsError) as refused:
        read(config)
    (problem,) = refused.value.problems
    assert problem.startswith("node_qouta: no such setting.") and "the nearest is node_quota." in problem


def test_unknown_name_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that Kubernetes sets for a service called stanzaq is ignored."""
    for name, value in {
        "STANZAQ_PORT": "tcp://10.0.0.1:80",
        "STANZAQ_REST_SERVICE_HOST": "10.0.0.1",
        "STANZAQ_REST_SERVICE_PORT_HTTP": "80",
        "STANZAQ_PORT_80_TCP_ADDR": "10.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    assert load().xmpp_domain == "queue.example.org"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("STANZAQ_REDIS_ULR", "STANZAQ_REDIS_URL"),
        ("STANZAQ_NODE_QOUTA", "STANZAQ_NODE_QUOTA"),
        ("STANZAQ_XMPP_SECRETFILE", "STANZAQ_XMPP_SECRET_FILE"),
        ("STANZAQ_XMPP_PORT", "STANZAQ_XMPP_"),
    ],
)
@pytest.mark.parametrize("read", [load, load_redis, load_command])
def test_misspelt_name_in_environment(
    name: str, nearest: str, read: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that looks like a setting and is none is refused with the nearest name, by every command."""
    monkeypatch.setenv(name, "5347")
    with pytest.raises(SettingsError) as refused:
        read()
    (problem,) = refused.value.problems
    assert problem.startswith(f"{name}: no such setting.") and f"the nearest is {nearest}" in problem


@pytest.mark.parametrize("name", [PASSWORD, URL])
def test_variables_of_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that works with the library may run the service's commands too."""
    monkeypatch.setenv(name, "x")
    load_command()


@pytest.mark.parametrize("text", ["node_quota 7", "\x00", 'node_quota = "'])
def test_file_not_toml(text: str, tmp_path: Path) -> None:
    """A file that is not TOML is named, with the place of the fault."""
    config = tmp_path / "stanzaq.toml"
    config.write_text(text)
    (problem,) = _problems(config)
    assert problem.startswith(str(config))


def test_file_missing(tmp_path: Path) -> None:
    """A file that is not there is named."""
    (problem,) = _problems(tmp_path / "none.toml")
    assert "none.toml" in problem


def test_secrets_are_not_shown() -> None:
    """Neither the secret nor the URL of Redis is in the settings' text, which logs may hold."""
    text = repr(load())
    assert "s3cret" not in text
    assert "6379" not in text


def test_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between tries reach the scripts as whole milliseconds, and their number."""
    monkeypatch.setenv("STANZAQ_QOS_RETRY_SECONDS", "0.25")
    monkeypatch.setenv("STANZAQ_QOS_RETRIES", "0")
    assert load().retry == "250 20000 0"


SALT, DIGEST = "WDtzWVTxQfeIYM8ZlIJF.e", "wYLNJJV02rhAL7OLvHKAhc79rcWj3hW"


@pytest.mark.parametrize(
    ("hashed", "is_one"),
    [
        (f"$2b$04${SALT}{DIGEST}", True),
        (f"$2y$31${SALT}{DIGEST}", True),
        (f"$2b$03${SALT}{DIGEST}", False),
        (f"$2b$32${SALT}{DIGEST}", False),
        # Its bits are more than a salt has.
        (f"$2b$04${SALT[:-1]}f{DIGEST}", False),
    ],
)
def test_hashes(hashed: str, is_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """What bcrypt would refuse at each login is refused at the start."""
    monkeypatch.setenv("STANZAQ_HTTP_PASSWORDS", f"a@b:{hashed}")
    if is_one:
        assert hashed in load().secrets
        return
    (problem,) = _problems()
    assert "line 1 is not JID:HASH with a bcrypt hash" in problem and DIGEST not in problem


PUBLIC = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ("{hunter2", "neither a JWKS nor a public key"),
        ("hunter2", "neither a JWKS nor a public key"),
        ('{"keys": [], "hunter2": 1}', "neither a JWKS nor a public key"),
        ('{"keys": [{"kty": "hunter2"}]}', "neither a JWKS nor a public key"),
        ('{"keys": [{"kty": "oct", "k": "hunter22"}]}', "none of its keys is a public one"),
        (f"-----BEGIN PUBLIC KEY-----\n{PUBLIC}hunter2=\n-----END PUBLIC KEY-----", "neither a JWKS nor a public key"),
        ("ftp://localhost/keys?hunter2", "over https alone"),
        ("https:///keys?hunter2", "over https alone"),
        ("http://login.example.org/?hunter2", "over https alone"),
    ],
)
def test_keys_of_tokens(keys: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that could verify no token are refused, and not repeated."""
    monkeypatch.setenv("STANZAQ_JWT_KEYS", keys)
    (problem,) = _problems()
    assert wrong in problem and "hunter2" not in problem


KEY = "a-shared-key-of-forty-characters-or-more"


@pytest.mark.parametrize(
    ("lines", "more", "said"),
    [
        (f"one a@b {KEY}\n\n  two  A@b\t{KEY}  \n", {}, ""),
        (f"one a@b {KEY[:31]}", {}, "line 1 is not NAME JID KEY"),
        (f"\none:a@b:{KEY}", {}, "line 2 is not NAME JID KEY"),
        (f"one a {KEY}", {}, "line 1 is not NAME JID KEY"),
        (f"one a@@b {KEY}", {}, "line 1 is not NAME JID KEY"),
        (f"o%6e a@b {KEY}", {}, "line 1 is not NAME JID KEY"),
        (f"one a@b {KEY}\none b@b {KEY}", {}, "line 2 repeats a name"),
        (f"one a@b {KEY}", {"ANONYMOUS": "a@b"}, "keep one"),
        ("\n", {}, "Nobody may connect"),
    ],
)
def test_shared_keys(monkeypatch: pytest.MonkeyPatch, lines: str, more: dict[str, str], said: str) -> None:
    """P1: clients of Event Hubs have long keys of their own, each for one name; errors do not show them."""
    for name, value in {"EVENT_HUBS_KEYS": lines, **more}.items():
        monkeypatch.setenv(f"STANZAQ_AMQP_{name}", value)
    if not said:
        settings = load_amqp()
        assert settings.secrets.count(KEY) == 2 and KEY not in repr(settings)
        return
    with pytest.raises(SettingsError, match=said) as caught:
        load_amqp()
    assert KEY[:31] not in str(caught.value)


def test_settings_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives settings, as a bench on a Redis of its own does, has these alone: the environment is of a real service."""
    monkeypatch.setenv("STANZAQ_REDIS_URL", "redis://production.example.org:6379/0")
    monkeypatch.setenv("STANZAQ_NODE_QUOTA", "7")
    given = CommandSettings(redis_url="redis://127.0.0.1:6380/0")
    assert given.redis_url == "redis://127.0.0.1:6380/0" and given.node_quota != 7
    assert load_command().redis_url == "redis://production.example.org:6379/0" and load_command().node_quota == 7
