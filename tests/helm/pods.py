"""A Deployment as processes: its pods are started, probed, replaced and stopped as Kubernetes does it.

Knows the rules of Deployments and kubelets; every number comes from the rendered chart. Pauses are shortened, limits are not: a
slow machine must not look like a broken frontend.
"""

import asyncio
import base64
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from frontends.tools.servers.process import Process, free_port
from tests.helm.charts import Object, the

FASTER: Final = 20
"""How many times shorter a pause is than in a cluster."""

_TURN_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP probe of a container; the pause in seconds of the simulation."""

    path: str
    pause: float
    timeout: float
    failures: int

    @classmethod
    def of(cls, container: dict[str, Any], kind: str) -> "Probe":
        """Read a probe."""
        found = container[f"{kind}Probe"]
        pause = found["periodSeconds"] / FASTER
        return cls(found["httpGet"]["path"], pause, found["timeoutSeconds"], found["failureThreshold"])


class Pod:
    """A pod, as its kubelet runs it: `ready` by its probe."""

    def __init__(self, objects: Sequence[Object], component: str, directory: Path) -> None:
        """Take the container from a Deployment's template, its variables and secrets from the other objects."""
        template = the(objects, "Deployment", component)["spec"]["template"]["spec"]
        (self._container,) = template["containers"]
        self._grace_seconds: int = template["terminationGracePeriodSeconds"]
        self._directory = directory
        # In a cluster each pod has an address of its own.
        self._at = f"127.0.0.1:{free_port()}"
        self._environment = self._variables(objects)
        self._process: Process | None = None
        self._probing: asyncio.Task[None] | None = None
        self._hung = False
        self.ready = False

    def _variables(self, objects: Sequence[Object]) -> dict[str, str]:
        secrets = the(objects, "Secret")["data"]
        found = {**os.environ, **the(objects, "ConfigMap")["data"]}
        for each in self._container["env"]:
            found[each["name"]] = each["value"]
            if each["name"].endswith("_FILE"):
                file = self._directory / Path(each["value"]).name
                file.write_bytes(base64.b64decode(secrets[file.name]))
                found[each["name"]] = str(file)
        return found | {"STANZAQ_METRICS_BIND": self._at}

    def start(self) -> None:
        """Start the container, and probe it from now on."""
        command = [sys.executable, "-m", "frontends.cli", *self._container["args"]]
        log = self._directory / "log"
        self._process = Process(command, directory=self._directory, log=log, environment=self._environment)
        self._probing = asyncio.create_task(self._probe())

    def check(self) -> None:
        """Raise an error if a kubelet would restart the container."""
        assert self._probing is not None and not self._hung, "its liveness probe fails"
        if self._probing.done():
            # It did not start in time.
            self._probing.result()

    async def _probe(self) -> None:
        async with httpx.AsyncClient(base_url=f"http://{self._at}") as client:
            startup = Probe.of(self._container, "startup")
            async with asyncio.timeout(startup.pause * FASTER * startup.failures):
                while not await _passes(client, startup):  # noqa: ASYNC110  (a probe is a poll)
                    await asyncio.sleep(startup.pause)
            await asyncio.gather(self._probe_liveness(client), self._probe_readiness(client))

    async def _probe_liveness(self, client: httpx.AsyncClient) -> None:
        probe, failed = Probe.of(self._container, "liveness"), 0
        while not self._hung:
            failed = 0 if await _passes(client, probe) else failed + 1
            self._hung = failed >= probe.failures
            await asyncio.sleep(probe.pause)

    async def _probe_readiness(self, client: httpx.AsyncClient) -> None:
        probe, failed = Probe.of(self._container, "readiness"), 0
        while True:
            passed = await _passes(client, probe)
            failed = 0 if passed else failed + 1
            self.ready = passed or (self.ready and failed < probe.failures)
            await asyncio.sleep(probe.pause)

    async def delete(self) -> int:
        """Stop the container in order; return its exit code, negative if it was killed at the end of its grace period."""
        assert self._process is not None and self._probing is not None
        sleep, seconds = self._container["lifecycle"]["preStop"]["exec"]["command"]
        assert sleep == "sleep"
        await asyncio.sleep(int(seconds) / FASTER)
        self._probing.cancel()
        return await asyncio.to_thread(self._process.stop, self._grace_seconds - int(seconds))

    def kill(self) -> None:
        """End the container at once."""
        assert self._process is not None and self._probing is not None
        self._probing.cancel()
        self._process.kill()


async def _passes(client: httpx.AsyncClient, probe: Probe) -> bool:
    try:
        return (await client.get(probe.path, timeout=probe.timeout)).is_success
    except httpx.HTTPError:
        return False


class Deployment:
    """The pods of one component, and how they are replaced."""

    def __init__(self, component: str, directory: Path) -> None:
        """Begin without pods; each gets a directory below this one."""
        self._component, self._directory = component, directory
        self._started: list[Pod] = []
        self.pods: list[Pod] = []
        self.exits: list[int] = []
        """The exit codes of deleted pods."""
        self.served: list[int] = []
        """How many pods were ready, and not being deleted, at each turn of the controller."""

    async def roll_out(self, objects: Sequence[Object]) -> None:
        """Replace all pods by those of these objects, within `maxSurge` and `maxUnavailable`; wait until the last one is gone."""
        spec = the(objects, "Deployment", self._component)["spec"]
        bounds = spec["strategy"]["rollingUpdate"]
        most, fewest = spec["replicas"] + bounds["maxSurge"], spec["replicas"] - bounds["maxUnavailable"]
        old, new, leaving = list(self.pods), list[Pod](), list[asyncio.Task[None]]()
        while old or len(new) < spec["replicas"] or not all(pod.ready for pod in new):
            if len(new) < spec["replicas"] and len(old) + len(new) < most:
                new.append(self._start(objects))
            spare = sum(pod.ready for pod in self.pods) - fewest
            for pod in old[: max(0, spare)]:
                old.remove(pod)
                self.pods.remove(pod)
                leaving.append(asyncio.create_task(self._delete(pod)))
            await asyncio.sleep(_TURN_SECONDS)
            for pod in self.pods:
                pod.check()
            self.served.append(sum(pod.ready for pod in self.pods))
        await asyncio.gather(*leaving)

    def _start(self, objects: Sequence[Object]) -> Pod:
        directory = self._directory / f"{self._component}-{len(self._started)}"
        directory.mkdir()
        pod = Pod(objects, self._component, directory)
        pod.start()
        self._started.append(pod)
        self.pods.append(pod)
        return pod

    async def _delete(self, pod: Pod) -> None:
        self.exits.append(await pod.delete())

    def kill(self) -> None:
        """End all pods at once."""
        for pod in self._started:
            pod.kill()
