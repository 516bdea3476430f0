"""One run with a seeded schedule of failures, and its outcome.

The seed decides which process fails next, and when. The instruction that the process has reached differs from
run to run, but all runs must end with the same bytes.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Set
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_server.storage.journal_reader import ClosedRound, JournalReader
from tests.chaos.observer import SERVER, BrokerObserver
from tests.chaos.processes import DEADLINE_S, DEVICES, FEDERATION, NETWORK, Processes

WEIGHTS = {"server": 0.25, "device": 0.35, "broker": 0.1, "link": 0.15, "aggregator": 0.15}
RECOVERY_S = 90.0
OVERLAP = 0.3
"""Probability that a failure is injected before the system has recovered from the previous one."""


@dataclass(frozen=True)
class Failure:
    """The `victims` that were killed or cut off at `moment` (monotonic seconds)."""

    kind: str
    victims: tuple[str, ...]
    moment: float


@dataclass(frozen=True)
class Outcome:
    """Models' digests and updates by round, the final model; what was lost, and counted twice.

    `seconds` are those to recover by kind of failure, with a standby until the first word of the next server.
    `forked` counts rounds that a server which was replaced has closed in another way than its successors;
    `late` the words of replaced servers that came after those of a newer one.
    """

    models: tuple[str, ...]
    made_of: tuple[tuple[tuple[str, str], ...], ...]
    final: bytes
    lost: int
    doubled: int
    failures: int = 0
    forked: int = 0
    late: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    log: tuple[str, ...] = ()

    @property
    def result(self) -> tuple[object, ...]:
        """What must not depend on failures."""
        return self.models, self.made_of, self.final


def closed_rounds(folder: Path) -> list[ClosedRound]:
    """The rounds that a server has closed in this folder."""
    if not (folder / "journal.sqlite").exists():
        return []
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        return reader.rounds()


def read_outcome(folder: Path, rounds: int, acknowledged: Set[tuple[str, str]], **more: Any) -> Outcome:
    """The outcome of the run in this folder, whose history has each round once."""
    closed = closed_rounds(folder)
    made_of = [tuple(sorted((update.device, update.digest) for update in one.updates)) for one in closed]
    counted = Counter(pair for made in made_of for pair in made)
    history = (folder / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in history] == list(range(1, rounds + 1))
    return Outcome(
        tuple(one.state_sha256 for one in closed),
        tuple(made_of),
        (folder / "models" / f"round-{rounds:04d}" / "state.safetensors").read_bytes(),
        lost=len(acknowledged - counted.keys()),
        doubled=sum(len(made) - len({device for device, _ in made}) for made in made_of),
        **more,
    )


class DisturbedRun:
    """Runs a federation and injects failures."""

    def __init__(
        self,
        folder: Path,
        *,
        rounds: int,
        failures: int,
        seed: int,
        devices: int = DEVICES,
        persistent: bool = False,
        network: str = NETWORK,
    ) -> None:
        self._random = random.Random(seed)
        self._failures, self._rounds = failures, rounds
        self._processes = Processes(
            folder, rounds=rounds, devices=devices, persistent=persistent, network=network
        )
        self._observer = BrokerObserver(self._processes.port, FEDERATION)
        self._injected: list[Failure] = []
        self._pending: list[Failure] = []
        self._seconds: dict[str, list[float]] = {kind: [] for kind in WEIGHTS}
        self.log: list[str] = []

    def run(self) -> Outcome:
        """Inject failures until the schedule or the run ends."""
        try:
            self._processes.open()
            self._await_all(0.0)
            while len(self._injected) < self._failures and not self._over(self._random.uniform(0.05, 1.0)):
                self._inject()
                if self._random.random() > OVERLAP:
                    self._await_recovery()
            self._await_recovery()
            ended = self._observer.await_end(lambda: self._processes.over, DEADLINE_S)
            assert ended, f"the run has not ended; {self.log[-20:]}"
            return self._outcome()
        finally:
            self._observer.close()
            self._processes.close()

    # --- failures ---
    def _inject(self) -> None:
        kind = self._random.choices(list(WEIGHTS), WEIGHTS.values())[0]
        device = self._random.choice(self._processes.names)
        busy = {victim for failure in self._pending for victim in failure.victims}
        victims = {"server": (SERVER,), "aggregator": (SERVER,), "broker": self._processes.names}.get(
            kind, (device,)
        )
        if busy & set(victims) or (SERVER in victims and self._processes.over):
            return
        if kind == "aggregator" and not self._processes.aggregators:
            return
        moment = {
            "server": self._processes.kill_server,
            "aggregator": lambda: self._processes.kill_aggregator(
                self._random.choice(self._processes.aggregators)
            ),
            "broker": self._processes.kill_broker,
            "device": lambda: self._processes.kill_device(device),
            "link": lambda: self._processes.cut_link(device),
        }[kind]()
        failure = Failure(kind, victims, moment)
        self._injected.append(failure)
        self._pending.append(failure)
        self.log.append(f"{moment:.2f} {kind} {device if len(victims) == 1 else ''}")

    def _settle(self) -> bool:
        """Record the victims that have recovered; returns whether all have."""
        for failure in list(self._pending):
            back = [self._observer.sign_after(victim, failure.moment) for victim in failure.victims]
            if None not in back:
                self._pending.remove(failure)
                self._seconds[failure.kind].append(max(at for at in back if at) - failure.moment)
        return not self._pending

    def _await_recovery(self) -> None:
        """Wait until every victim has recovered or the run has ended."""
        until = time.monotonic() + RECOVERY_S
        while not self._observer.wait(self._settle, 0.5) and not self._processes.over:
            assert time.monotonic() < until, f"not recovered: {self._pending}; {self.log[-10:]}"
        if self._processes.over:
            self._pending.clear()

    def _await_all(self, moment: float) -> None:
        """Wait for a message of the server and of every device."""
        there = self._observer.wait(
            lambda: all(self._observer.sign_after(who, moment) for who in (SERVER, *self._processes.names)),
            DEADLINE_S,
        )
        assert there, "some processes have published nothing"

    def _over(self, timeout_s: float) -> bool:
        """Whether the run has ended; waits up to `timeout_s` seconds."""
        self._observer.wait(lambda: self._processes.over, timeout_s)
        return self._processes.over

    # --- outcome ---
    def _outcome(self) -> Outcome:
        counts = {"failures": len(self._injected), "seconds": self._seconds, "log": tuple(self.log)}
        return read_outcome(self._processes.run, self._rounds, self._observer.acknowledged, **counts)
