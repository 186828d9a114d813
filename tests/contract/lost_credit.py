"""Credit that is granted and never delivered, as by a frontend that dies with the reply."""

from typing import Any

from broker import keys
from broker.redis_core.commands.credit import Grant
from broker.redis_core.core import RedisCore
from broker.redis_core.operations.operation import ScriptReply


async def lost_grants(core: RedisCore, node: str, number: int, wanted: int) -> list[Grant]:
    """Let the coordinator of a node grant credit to a partition, and deliver no grant."""
    record = await core.router(node).known.renew()
    assert record is not None
    shared: dict[str, Any] = {
        "now": "",
        "revision": record.revision,
        "frontend": core.frontend,
        "sent": "",
        "number": 0,
    }
    row = {"holdings": "", "wants": f"{number} 1 {wanted} A", "registered": "", "gone": ""}
    names = [keys.of_partition(name, record.partition(0)) for name in core._server.operations["grant_credit"].keys]
    call = core._server.call("grant_credit", names, {**shared, "retry": core.retry}, [row])
    reply = ScriptReply.read(await core._server.run(call), record.partition(0), record.config)
    assert reply is not None and reply.credit is not None
    return list(reply.credit.grants)
