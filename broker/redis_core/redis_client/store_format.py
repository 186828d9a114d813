"""Checks the format of the store: a process of another version reports it and changes nothing. Must not know what is stored."""

from broker import keys
from broker.model.problems import OtherFormat
from broker.redis_core.redis_client.client import Server


async def check_format(server: Server, *, begin: bool) -> None:
    """Check that this version can use the store, and with `begin` start one where there is none; raises OtherFormat."""
    names = [keys.of_service(name) for name in server.operations["check_format"].keys]
    given = {"format": keys.FORMAT, "begin": "1" if begin else ""}
    code, found = await server.run(server.call("check_format", names, given))
    if code != b"ok":
        raise OtherFormat(": ".join(keys.other_format(found)))
