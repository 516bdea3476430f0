"""What a device keeps to itself between rounds: SCAFFOLD's control, IGFL's last step.

A round's keepings are proposed when it is trained and count only once the server has counted its update, so
both sides always speak of the same rounds. Arrays that bear a parameter's name are kept in global
coordinates: the next round may bring another sub-model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.storage.atomic_files import put_in_place, written_aside

if TYPE_CHECKING:
    from schemas.tensors.blobs import Groups

KEPT_ROUNDS = 2
"""A round may be planned anew after it was counted; it then starts from the one before."""


class PrivateState:
    """One folder per run, one file per counted round; a run that begins forgets the others."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self._folder, self._durable = folder, durable

    def load(self, run: str, round_number: int) -> Groups:
        """The groups kept after the last counted round before `round_number`; none at the start.

        Their arrays are read when they are asked for, which must be before anything else is committed.
        """
        from schemas.tensors.blobs import FileGroups

        kept = self.kept(run, round_number)
        return FileGroups(kept) if kept else {}

    def kept(self, run: str, round_number: int) -> Path | None:
        """The file that `load` reads."""
        earlier = [number for number in self._rounds(run) if number < round_number]
        return self._file(run, earlier[-1]) if earlier else None

    def propose(self, run: str, round_number: int, attempt: int, groups: Groups) -> None:
        """Put down what this attempt at a round would leave; nothing is kept of no groups."""
        from schemas.tensors.blobs import FlatGroups
        from schemas.tensors.files import tensor_file_blocks

        if groups:
            path = self._proposal(run, round_number, attempt)
            with written_aside(path, durable=self._durable) as file:
                file.writelines(tensor_file_blocks(FlatGroups(groups)))

    def commit(self, run: str, round_number: int, attempt: int) -> None:
        """The server has counted this attempt; without a proposal nothing changes."""
        proposal = self._proposal(run, round_number, attempt)
        if proposal.exists():
            put_in_place(proposal, self._file(run, round_number), durable=self._durable)
            self._forget(run)

    def discard(self, run: str, round_number: int, attempt: int) -> None:
        """The update was refused: as if the round had not been."""
        self._proposal(run, round_number, attempt).unlink(missing_ok=True)

    def _forget(self, run: str) -> None:
        counted = self._rounds(run)
        for old in counted[:-KEPT_ROUNDS]:
            self._file(run, old).unlink()
        # What was proposed for rounds up to this one, and never answered, is not going to count.
        for proposal in (self._folder / run).glob("*.proposed"):
            if int(proposal.stem.partition("-")[0]) <= counted[-1]:
                proposal.unlink()
        for other in self._folder.iterdir():
            if other.name != run:
                for path in other.iterdir():
                    path.unlink()
                other.rmdir()

    def _rounds(self, run: str) -> list[int]:
        return sorted(int(path.stem) for path in (self._folder / run).glob("*.safetensors"))

    def _file(self, run: str, round_number: int) -> Path:
        return self._folder / run / f"{round_number}.safetensors"

    def _proposal(self, run: str, round_number: int, attempt: int) -> Path:
        return self._folder / run / f"{round_number}-{attempt}.proposed"
