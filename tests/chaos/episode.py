"""One run with a seeded schedule of deaths, and what became of it.

Who dies next, and when, is drawn from the seed. Which instruction a victim is at is the machine's to decide:
no two runs are the same, but all of them must end in the same bytes.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from edge_server.storage.journal_reader import JournalReader
from tests.chaos.nursery import Nursery
from tests.chaos.spy import SERVER, Spy
from tests.chaos.stage import DEADLINE_S, DEVICES, FEDERATION, Stage

WEIGHTS = {"server": 0.25, "device": 0.45, "broker": 0.1, "link": 0.2}
RECOVERY_S = 90.0
OVERLAP = 0.3
"""How often the next blow falls before the last one is recovered from."""


@dataclass(frozen=True)
class Blow:
    """Something was killed or cut at `moment` and had to come back."""

    kind: str
    victims: tuple[str, ...]
    moment: float


@dataclass(frozen=True)
class Outcome:
    """What is left of a run: a digest per round, what each was made of, and seconds to recover by kind."""

    models: tuple[str, ...]
    made_of: tuple[tuple[tuple[str, str], ...], ...]
    final: bytes
    lost: int
    doubled: int
    blows: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    log: tuple[str, ...] = ()


class Episode:
    """Lets a run go its way, and strikes."""

    def __init__(
        self, folder: Path, nursery: Nursery, *, rounds: int, blows: int, seed: int, persistent: bool = False
    ) -> None:
        self._random = random.Random(seed)
        self._blows, self._rounds = blows, rounds
        self._stage = Stage(folder, nursery, rounds=rounds, persistent=persistent)
        self._spy = Spy(self._stage.port, FEDERATION)
        self._struck: list[Blow] = []
        self._pending: list[Blow] = []
        self._seconds: dict[str, list[float]] = {kind: [] for kind in WEIGHTS}
        self.log: list[str] = []

    def run(self) -> Outcome:
        """Strike until the schedule or the run is at its end."""
        try:
            self._stage.open()
            self._await_all(0.0)
            while len(self._struck) < self._blows and not self._over(self._random.uniform(0.05, 1.0)):
                self._strike()
                if self._random.random() > OVERLAP:
                    self._await_recovery()
            self._await_recovery()
            until = time.monotonic() + DEADLINE_S
            while not self._over(0.5):
                assert time.monotonic() < until, f"the run does not end; {self.log[-20:]}"
            return self._outcome()
        finally:
            self._spy.close()
            self._stage.close()

    # --- blows ---
    def _strike(self) -> None:
        kind = self._random.choices(list(WEIGHTS), WEIGHTS.values())[0]
        device = self._random.choice(DEVICES)
        busy = {victim for blow in self._pending for victim in blow.victims}
        victims = {"server": (SERVER,), "broker": DEVICES}.get(kind, (device,))
        if busy & set(victims) or (kind == "server" and self._stage.over):
            return
        moment = {
            "server": self._stage.kill_server,
            "broker": self._stage.kill_broker,
            "device": lambda: self._stage.kill_device(device),
            "link": lambda: self._stage.cut_link(device),
        }[kind]()
        blow = Blow(kind, victims, moment)
        self._struck.append(blow)
        self._pending.append(blow)
        self.log.append(f"{moment:.2f} {kind} {device if len(victims) == 1 else ''}")

    def _settle(self) -> bool:
        """Note who is back; returns whether everyone is."""
        for blow in list(self._pending):
            back = [self._spy.sign_after(victim, blow.moment) for victim in blow.victims]
            if None not in back:
                self._pending.remove(blow)
                self._seconds[blow.kind].append(max(at for at in back if at) - blow.moment)
        return not self._pending

    def _await_recovery(self) -> None:
        """Until everyone is back, or the run is over: then nobody has to speak any more."""
        until = time.monotonic() + RECOVERY_S
        while not self._spy.wait(self._settle, 0.5) and not self._stage.over:
            assert time.monotonic() < until, f"not back: {self._pending}; {self.log[-10:]}"
        if self._stage.over:
            self._pending.clear()

    def _await_all(self, moment: float) -> None:
        """Until the server and all devices have spoken."""
        there = self._spy.wait(
            lambda: all(self._spy.sign_after(who, moment) for who in (SERVER, *DEVICES)), DEADLINE_S
        )
        assert there, "not all have come"

    def _over(self, timeout_s: float) -> bool:
        """Whether the run has ended, after at most so long."""
        self._spy.wait(lambda: self._stage.over, timeout_s)
        return self._stage.over

    # --- what is left ---
    def _outcome(self) -> Outcome:
        with closing(JournalReader(self._stage.run / "journal.sqlite")) as reader:
            rounds = reader.rounds()
        made_of = [tuple(sorted((one.device, one.digest) for one in closed.updates)) for closed in rounds]
        counted = Counter(pair for made in made_of for pair in made)
        twice = sum(len(made) - len({device for device, _ in made}) for made in made_of)
        version = self._stage.run / "models" / f"round-{self._rounds:04d}" / "state.safetensors"
        history = (self._stage.run / "history.jsonl").read_text().splitlines()
        assert [json.loads(line)["round"] for line in history] == list(range(1, self._rounds + 1))
        return Outcome(
            tuple(one.state_sha256 for one in rounds),
            tuple(made_of),
            version.read_bytes(),
            lost=len(self._spy.acknowledged - counted.keys()),
            doubled=twice,
            blows=len(self._struck),
            seconds=self._seconds,
            log=tuple(self.log),
        )
