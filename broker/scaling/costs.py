"""The measured costs of a job. `stanzaq bench scale --processes 4 --save` writes their file. Must not compute loads."""

import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Final

NAME: Final = "costs.json"


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time of one kind of process for a job, in µs: of each item, of each call, and of a call that it slept before.

    A call is one run of an operation in Redis; commands that come up together share it.
    """

    item_us: float
    call_us: float
    wake_us: float = 0.0

    def of_job(self, calls: float, asleep: float = 0.0) -> float:
        """Return the µs of a job that takes part in so many calls, a share of which finds the process asleep."""
        return self.item_us + calls * (self.call_us + self.wake_us * asleep)


@dataclass(frozen=True, slots=True)
class Costs:
    """All costs of a job over XMPP with `batch` items in a stanza, in µs of processor time.

    `xmpp` is of the XMPP server: fewer calls of Redis make fewer and larger writes there too. `beat_us` is of Redis for a
    heartbeat, `beat_frontend_us` of the frontend for it.
    """

    redis: Cost
    frontend: Cost
    xmpp: Cost
    beat_us: float
    beat_frontend_us: float
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """The costs of single items and of batches, and where and when they were measured.

    `load_average` is that of the machine before the measurement: a whole number of cores or more means that others used it too.
    """

    by: str
    date: str
    machine: dict[str, str | int]
    load_average: float
    single: Costs
    batched: Costs

    @property
    def quiet(self) -> bool:
        """Whether most of the machine was idle before."""
        return self.load_average < int(self.machine["cores"]) / 2

    def text(self) -> str:
        """Write the file."""
        return json.dumps(asdict(self), indent=1) + "\n"


def read(text: str) -> Measured:
    """Read the text of such a file."""
    found: dict[str, Any] = json.loads(text)
    return Measured(**{**found, "single": _costs(found["single"]), "batched": _costs(found["batched"])})


def read_costs() -> Measured:
    """Return the costs of the file of this version."""
    return read(files(__package__).joinpath(NAME).read_text(encoding="utf-8"))


def _costs(found: dict[str, Any]) -> Costs:
    values: dict[str, Any] = {
        name: Cost(**value) if isinstance(value, dict) else value for name, value in found.items()
    }
    return Costs(**values)
