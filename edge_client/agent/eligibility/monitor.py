"""Reads the board at intervals and keeps the state of eligibility."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from edge_client.agent.eligibility.machine import Command, EligibilityState, step
from edge_client.agent.eligibility.rules import Rules
from edge_client.agent.eligibility.verdict import Conditions, EligibilityVerdict, conditions, unknown

log = logging.getLogger(__name__)


class EligibilityMonitor:
    """Applies the rules to what `look` reads from the board."""

    def __init__(self, rules: Rules, look: Callable[[], Conditions]) -> None:
        self._rules, self._look = rules, look
        self._next = 0.0
        self._unknown: tuple[str, ...] = ()
        self.state = EligibilityState()

    @classmethod
    def of_board(cls, rules: Rules, *, cores: int, root: Path) -> "EligibilityMonitor":
        """A monitor of this machine; `root` is the directory above `/proc` and `/sys`."""
        return cls(rules, partial(conditions, cores=cores, root=root))

    @property
    def verdict(self) -> EligibilityVerdict:
        return self.state.verdict

    def check(self, now: float, *, at_work: bool) -> list[Command]:
        """Read the board if that is due at `now`, in seconds; returns what to do."""
        if self._rules.asks_nothing or now < self._next:
            return []
        self._next = now + self._rules.check_every_s
        seen = self._look()
        self._note(unknown(self._rules, seen))
        self.state, commands = step(self.state, self._rules, seen, now, at_work=at_work)
        return commands

    def _note(self, keys: tuple[str, ...]) -> None:
        """Warn, once per change, of rules for which the board has no reading."""
        if keys != self._unknown and keys:
            log.warning(
                "[eligibility] %s: this board does not tell (any more), so the rule is not applied", keys
            )
        self._unknown = keys
