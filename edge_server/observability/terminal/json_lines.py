"""JSON output of a run: each closed round as in `history.jsonl`, then the summary."""

from __future__ import annotations

from typing import Self, TextIO

from edge_server.observability.snapshot import Snapshot
from schemas.base import Frozen


class JsonLines:
    """Writes one JSON document per line; only the summary has an `outcome`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: Snapshot | None = None
        self._closed = 0

    def __enter__(self) -> Self:
        return self

    def show(self, snapshot: Snapshot) -> None:
        """Write the rounds closed since the last call."""
        for record in snapshot.history:
            if record.round > self._closed:
                self._write(record)
                self._closed = record.round
        self._last = snapshot

    def __exit__(self, *_: object) -> None:
        if self._last is not None and self._last.summary is not None:
            self._write(self._last.summary)

    def _write(self, value: Frozen) -> None:
        print(value.model_dump_json(), file=self._stream, flush=True)
