"""Items that wait for others, in one partition: what a frontend does between the scripts, by hand."""

import json

from tests.lua.driver import Answer, Queue, text


def record(*parents: str, regardless: bool = False, once: str = "") -> str:
    """Write the record of a new item that waits."""
    told = [{"node": "", "life": "life", "item": each, "state": ""} for each in parents]
    return json.dumps({"regardless": regardless, "once": once, "parents": told})


def wait(
    queue: Queue,
    item: str,
    *parents: str,
    hints: str = "0 4 0",
    regardless: bool = False,
    key: str = "",
    body: bytes | None = None,
) -> str:
    """Publish an item that waits, as its frontend stores it first; return its position."""
    waits = record(*parents, regardless=regardless)
    (row,) = queue.publish(item, hints=f"{hints} \0{waits}", key=key, body=body).rows
    number, position, told = row[3]
    assert row[:3] == ["ok", item, 0] and (number, told) == (str(queue.partition.number), waits)
    return str(position)


def asked(queue: Queue, item: str, reference: str, *, token: str = "", register: bool = True) -> list[str]:
    """Ask what became of a parent."""
    row = {"item": item, "reference": reference, "token": token, "register": "1" if register else ""}
    answer: list[str] = queue.run("await_end", row).rows[0]
    return answer


def note(queue: Queue, position: str, index: int, state: str, *, result: str = "", reason: str = "") -> Answer:
    """Note what became of a parent, counted from 1."""
    row = {"position": position, "index": index, "state": state, "partition": 0, "token": "7-7"}
    return queue.run("note_parents", {**row, "reason": reason, "result": result})


def parents(queue: Queue, position: str) -> list[str]:
    """Return the states of an item's parents; empty when it waits for nothing."""
    found = queue.client.hget(queue.key("dependents"), position)
    return states(text(found)) if found else []


def states(told: str) -> list[str]:
    """Return the states of the parents in a record."""
    return [each["state"] for each in json.loads(told)["parents"]]
