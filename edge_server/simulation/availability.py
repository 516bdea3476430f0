"""When a virtual device is online: alternating online and offline spells in virtual time.

Each spell's length is exponential with the board's mean (an on-off Markov process). At time 0 the device is
online with the stationary probability online_s / (online_s + offline_s). An exponential spell has no memory,
so the first one is drawn like the others.
"""

import hashlib
import math
from bisect import bisect_right

import numpy as np

from edge_server.config.board_profiles import BoardProfile
from schemas.errors import InvariantError


class Availability:
    """One device's spells: a pure function of board, seed and device name."""

    def __init__(self, board: BoardProfile, *, seed: int, device: str) -> None:
        self._board = board
        digest = hashlib.sha256(f"{seed}/{device}".encode()).digest()
        self._rng = np.random.default_rng(int.from_bytes(digest))
        self._changes: list[float] = []
        self._first = board.offline_s == 0 or self._draw_first()

    def online(self, t: float) -> bool:
        """Whether the device is online at `t` seconds; at a change, the state after it."""
        return self._state(self._spell(t))

    def next_change(self, t: float) -> float:
        """The time of the next change after `t`; infinity if there is none."""
        spell = self._spell(t)
        return math.inf if self._board.offline_s == 0 else self._changes[spell]

    def _draw_first(self) -> bool:
        share = self._board.online_s / (self._board.online_s + self._board.offline_s)
        return bool(self._rng.random() < share)

    def _state(self, spell: int) -> bool:
        return self._first if spell % 2 == 0 else not self._first

    def _spell(self, t: float) -> int:
        """The number of the spell at `t`, from 0; draws spells in order until one ends after `t`."""
        if self._board.offline_s == 0:
            return 0
        if not math.isfinite(t):
            raise InvariantError(f"the time must be finite, not {t}: a device has infinitely many spells")
        while not self._changes or self._changes[-1] <= t:
            mean = self._board.online_s if self._state(len(self._changes)) else self._board.offline_s
            began = self._changes[-1] if self._changes else 0.0
            self._changes.append(began + float(self._rng.exponential(mean)))
        return bisect_right(self._changes, t)


class Latecomer:
    """A device that joins at `at_s` seconds and stays online."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def online(self, t: float) -> bool:
        """Whether the device has joined."""
        return t >= self._at_s

    def next_change(self, t: float) -> float:
        """When the device joins; infinity afterwards."""
        return math.inf if self.online(t) else self._at_s
