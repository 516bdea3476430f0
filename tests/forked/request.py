"""What the process from which others are forked is asked for."""

import json
import os
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Request:
    """A program with its words, folder, environment and blocked signals.

    `own_pids`: its process ids are its own. `ends_with_caller`: it is killed as soon as the process that has
    asked for it ends.
    """

    program: str
    words: tuple[str, ...]
    cwd: str
    environ: dict[str, str]
    blocked: tuple[int, ...] = ()
    own_pids: bool = False
    ends_with_caller: bool = True

    @classmethod
    def of_this_process(
        cls, program: str, words: Iterable[str], *, own_pids: bool = False, ends_with_caller: bool = True
    ) -> Self:
        """A request with this process's folder, environment and blocked signals."""
        return cls(
            program,
            tuple(words),
            str(Path.cwd()),
            dict(os.environ),
            tuple(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
            own_pids=own_pids,
            ends_with_caller=ends_with_caller,
        )

    def to_bytes(self, numbers: Iterable[int]) -> bytes:
        """The request as it is sent, with the numbers of the descriptors that are sent beside it."""
        return json.dumps([asdict(self), list(numbers)]).encode()

    @classmethod
    def from_bytes(cls, sent: bytes) -> tuple[Self, list[int]]:
        """The request and the numbers of its descriptors."""
        fields, numbers = json.loads(sent)
        return cls(**{**fields, "words": tuple(fields["words"])}), numbers
