"""Runs whose active server is killed, stopped or cut off again and again, and whose standby takes over."""

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.campaign import repeat
from tests.chaos.disturbed_run import Outcome, closed_rounds, read_outcome
from tests.chaos.observer import SERVER, BrokerObserver
from tests.chaos.processes import DEADLINE_S, FEDERATION
from tests.chaos.servers import ServerProcess, TwoServers, await_true

KINDS = ("kill", "pause", "partition")


class TakeoverRun:
    """Runs a federation, and makes `failures` of its active servers fail, one after the other."""

    def __init__(
        self, folder: Path, *, rounds: int, failures: int, seed: int, devices: int, network: str
    ) -> None:
        self._random, self._rounds, self._failures = random.Random(seed), rounds, failures
        self._servers = TwoServers(folder, rounds=rounds, devices=devices, network=network)
        self._observer = BrokerObserver(self._servers.port, FEDERATION)
        self._seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def run(self) -> Outcome:
        """Inject failures until the schedule or the run ends."""
        servers = self._servers
        try:
            servers.start_active()
            self._await(lambda: self._observer.sign_after(SERVER, 0.0) is not None, "no server")
            servers.start_devices()
            for _ in range(self._failures):
                self._ready(servers.start_standby())
                if self._over(self._random.uniform(0.05, 1.0)):
                    break
                self._fail(self._random.choice(KINDS))
            ended = self._observer.await_end(lambda: servers.over, DEADLINE_S)
            assert ended, f"the run has not ended: {servers.active.said[-2000:]}"
            return self._outcome()
        finally:
            self._observer.close()
            servers.close()

    def _ready(self, standby: ServerProcess) -> None:
        """Wait until the standby may take over, or the run is over."""
        self._await(
            lambda: "ready to take over" in standby.said or self._servers.over, f"no standby: {standby.log}"
        )

    def _fail(self, kind: str) -> None:
        """Let the active server fail, wait for the standby, and let the old one come back."""
        servers, old = self._servers, self._servers.active
        epoch, moment = max(self._observer.epochs, default=1), time.monotonic()
        match kind:
            case "kill":
                old.kill()
            case "pause":
                old.stop()
            case "partition":
                servers.links.stall(old.link)
        ended = (old.folder / "summary.json").exists
        self._await(
            lambda: max(self._observer.epochs, default=1) > epoch or ended(),
            f"no takeover after a {kind}: {servers.standby.log}",
        )
        old.go_on()
        servers.links.resume(old.link)
        if ended():
            return
        self._seconds[kind].append(self._observer.epochs[max(self._observer.epochs)] - moment)
        servers.promote()
        self._await(lambda: old.ended(0.0), f"it goes on after a {kind}: {old.log}")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        await_true(lambda: self._observer.wait(condition, 0.2), what)

    def _over(self, timeout_s: float) -> bool:
        """Whether the run has ended; waits up to `timeout_s` seconds."""
        self._observer.wait(lambda: False, timeout_s)
        return self._servers.over

    def _outcome(self) -> Outcome:
        folder = self._servers.active.folder
        final = {closed.round: closed.state_sha256 for closed in closed_rounds(folder)}
        older = [closed for path in self._servers.folders for closed in closed_rounds(path)]
        forked = sum(final.get(closed.round) != closed.state_sha256 for closed in older)
        failures = sum(map(len, self._seconds.values()))
        counts = {"failures": failures, "forked": forked, "late": self._observer.late}
        return read_outcome(
            folder, self._rounds, self._observer.acknowledged, seconds=self._seconds, **counts
        )


def _run_takeovers(folder: Path, number: int, **settings: Any) -> Outcome:
    return TakeoverRun(folder, **settings).run()


takeovers = partial(repeat, _run_takeovers)
