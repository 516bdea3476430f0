"""The updates of closed rounds, kept so that every aggregate can be computed again (`edge-server replay`).

    spool/round-0000007/before.safetensors      the strategy's state before the round
    spool/round-0000007/model.safetensors       the model before the round
    spool/round-0000007/<sha256>                each update that it was made of
    spool/round-0000007/barn.sum                the sum of the updates of a site

Each round is complete by itself, so the oldest are deleted when all of them exceed the budget.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from edge_client.storage import atomic_files, file_recycling

BEFORE = "before.safetensors"
MODEL = "model.safetensors"


class UpdateArchive:
    """A folder of rounds, of at most `budget` bytes without the last one; with a budget of 0 nothing is kept.

    The files of deleted rounds are recycled into `spares`, if given.
    """

    def __init__(self, folder: Path, budget: int, *, spares: file_recycling.Spares | None = None) -> None:
        self._folder, self._budget, self._spares = folder, budget, spares

    def keep(
        self,
        round_number: int,
        before: Path,
        model: Path,
        updates: Iterable[Path],
        sums: Mapping[str, Path] | None = None,
    ) -> None:
        """Archive a round; files on the same disk are hard-linked, as they never change.

        `before` and `model` are the strategy's state and the model that the round began with, `sums` those of
        sites, by their names.
        """
        if not self._budget:
            return
        folder = self.folder(round_number)
        folder.mkdir(parents=True, exist_ok=True)
        _link(before, folder / BEFORE)
        _link(model, folder / MODEL)
        for update in updates:
            _link(update, folder / update.name)
        for site, path in (sums or {}).items():
            _link(path, folder / sum_name(site))
        self._enforce_budget()

    def folder(self, round_number: int) -> Path:
        return self._folder / f"round-{round_number:07d}"

    def _enforce_budget(self) -> None:
        sizes = {path: _size(path) for path in sorted(self._folder.iterdir())}
        for oldest in list(sizes)[:-1]:
            if sum(sizes.values()) <= self._budget:
                return
            for path in oldest.iterdir():
                self._forget(path)
            # The files may soon be written over, so no power cut may bring their old names back.
            atomic_files.sync(oldest)
            oldest.rmdir()
            del sizes[oldest]

    def _forget(self, path: Path) -> None:
        if self._spares is None:
            atomic_files.unlink(path)
        else:
            # Another process may still be reading a model's version.
            self._spares.add(path, shared=path.name == MODEL)


def sum_name(site: str) -> str:
    return f"{site}.sum"


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
