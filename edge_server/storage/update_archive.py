"""The updates of closed rounds, kept so that every aggregate can be computed again (`edge-server replay`).

    spool/round-0000007/before.safetensors      the strategy's state before the round
    spool/round-0000007/model.safetensors       the model before the round
    spool/round-0000007/<sha256>                each update that it was made of

Each round is whole by itself, so the oldest go when all of them exceed the budget.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from edge_client.storage.atomic_files import sync, unlink
from edge_client.storage.file_recycling import Spares

BEFORE = "before.safetensors"
MODEL = "model.safetensors"


class Spool:
    """A folder of rounds, of at most `budget` bytes beside the last one; without any nothing is kept.

    The files of a round that goes are added to `spares`, if there are any.
    """

    def __init__(self, folder: Path, budget: int, *, spares: Spares | None = None) -> None:
        self._folder, self._budget, self._spares = folder, budget, spares

    def keep(self, round_number: int, before: Path, model: Path, updates: Iterable[Path]) -> None:
        """Keep a round; files on the same disk, which never change, are linked and cost nothing twice.

        `before` and `model` are the strategy's state and the model that the round began with.
        """
        if not self._budget:
            return
        folder = self.folder(round_number)
        folder.mkdir(parents=True, exist_ok=True)
        _link(before, folder / BEFORE)
        _link(model, folder / MODEL)
        for update in updates:
            _link(update, folder / update.name)
        self._let_go()

    def folder(self, round_number: int) -> Path:
        """Where the round is, if it is kept."""
        return self._folder / f"round-{round_number:07d}"

    def _let_go(self) -> None:
        sizes = {path: _size(path) for path in sorted(self._folder.iterdir())}
        for oldest in list(sizes)[:-1]:
            if sum(sizes.values()) <= self._budget:
                return
            for path in oldest.iterdir():
                self._forget(path)
            # Whoever takes the files may soon write over them: no power cut may bring these names back.
            sync(oldest)
            oldest.rmdir()
            del sizes[oldest]

    def _forget(self, path: Path) -> None:
        if self._spares is None:
            unlink(path)
        else:
            # Of a model's version somebody may be reading still, who has found it before it went.
            self._spares.add(path, shared=path.name == MODEL)


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
