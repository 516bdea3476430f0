"""A writer of event files for TensorBoard, in a folder per run."""

from pathlib import Path
from typing import Any

from edge_server.observability.trackers.writers import LAST, RunFacts, scalars
from edge_server.storage.records import RoundRecord, Summary


class TensorBoardWriter:
    """Writes below `folder`; an incomplete round of a killed process is purged."""

    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._make, self._folder = SummaryWriter, Path(folder)
        self.writer: Any = None

    def begin(self, facts: RunFacts) -> int:
        folder = self._folder / facts.name
        last = _last_round(folder)
        self.writer = self._make(str(folder), purge_step=last + 1)
        return last

    def round(self, record: RoundRecord) -> None:
        for name, value in scalars(record).items():
            self.writer.add_scalar(name, value, record.round)
        self.writer.flush()

    def end(self, summary: Summary | None) -> None:
        self.writer.close()


def _last_round(folder: Path) -> int:
    """The last complete step in the event files; a truncated file is read up to its end."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not folder.is_dir():
        return 0
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    return max((int(point.step) for point in events.Scalars(LAST)), default=0) if LAST in tags else 0
