"""A device's private state between rounds: SCAFFOLD's control variate, IGFL's last step.

A round's state is proposed after training and committed when the server has counted the update, so both sides
refer to the same rounds. Arrays named after a parameter are stored in global coordinates, because the next
round may have another sub-model.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.storage.atomic_files import put_in_place, write_synced, written_aside

# The number of a connection, stored so that the next one is greater.

log = logging.getLogger(__name__)


def note_session(path: Path, number: int) -> None:
    """Store the number of this connection; if that fails, the clock provides the next one."""
    try:
        write_synced(path, str(number).encode())
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)


if TYPE_CHECKING:
    from schemas.tensors.arrays import Groups

KEPT_ROUNDS = 2  # a round may be planned again after it was counted, and then starts from the one before


class PrivateState:
    """One folder per run with one file per counted round; a new run removes the others."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self._folder, self._durable = folder, durable

    def load_groups(self, run: str, round_number: int) -> "Groups":
        """The groups of the last counted round before `round_number`; empty at the start.

        Arrays are read on access, which must happen before the next commit.
        """
        from schemas.tensors.files import FileGroups

        kept = self.find_file(run, round_number)
        return FileGroups(kept) if kept else {}

    def find_file(self, run: str, round_number: int) -> Path | None:
        earlier = [number for number in self._rounds(run) if number < round_number]
        return self._file(run, earlier[-1]) if earlier else None

    def propose(self, run: str, round_number: int, attempt: int, groups: "Groups") -> None:
        """Store the state that this attempt would leave; without groups nothing is stored."""
        from schemas.tensors.files import FlatGroups, tensor_file_blocks

        if groups:
            path = self._proposal(run, round_number, attempt)
            with written_aside(path, durable=self._durable) as file:
                file.writelines(tensor_file_blocks(FlatGroups(groups)))

    def propose_more(self, run: str, round_number: int, attempt: int, groups: "Groups") -> None:
        """Add groups to those that this attempt has proposed."""
        from schemas.tensors.files import FileGroups

        path = self._proposal(run, round_number, attempt)
        proposed = FileGroups(path) if path.exists() else {}
        self.propose(run, round_number, attempt, {**proposed, **groups})

    def commit(self, run: str, round_number: int, attempt: int) -> None:
        """The server has counted this attempt: keep its proposal, if there is one."""
        proposal = self._proposal(run, round_number, attempt)
        if proposal.exists():
            put_in_place(proposal, self._file(run, round_number), durable=self._durable)
            self._forget(run)

    def discard(self, run: str, round_number: int, attempt: int) -> None:
        """The update was refused: drop the proposal."""
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
