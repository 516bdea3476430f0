"""Results of benchmarks, stored as a table and as JSON after each benchmark, so that none is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.figure import Figure, remarks, table

TABLE, FIGURES = "table.md", "figures.json"


@dataclass(frozen=True)
class Results:
    """Per benchmark its figures, start, duration and machine; `folder` is where they are stored."""

    folder: Path | None = None
    found: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | None) -> Results:
        """Load the results of earlier runs from the folder."""
        path = folder / FIGURES if folder else None
        return cls(folder, json.loads(path.read_text()) if path and path.exists() else {})

    def with_found(
        self, name: str, figures: Sequence[Figure], *, machine: Mapping[str, Any], seconds: float
    ) -> Results:
        """Replace the results of a benchmark."""
        entry = {
            "taken": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 1),
            "machine": dict(machine),
            "figures": [figure.as_json() for figure in figures],
        }
        return replace(self, found={**self.found, name: entry})

    def reported(self, order: Sequence[str]) -> str:
        """The table and the remarks below it, in the order of `order`."""
        named = [self.found[name] for name in order if name in self.found]
        figures = [Figure.of_json(figure) for entry in named for figure in entry["figures"]]
        runs = [
            f"| {name} | {self.found[name]['taken']} | {self.found[name]['seconds']:.0f} s "
            f"| {self.found[name]['machine']['load_before']} | {self.found[name]['machine']['processor']} |"
            for name in order
            if name in self.found
        ]
        head = ["| benchmark | taken | time | load before | processor |", "| --- | --- | ---: | ---: | --- |"]
        about = dict(named[-1]["machine"]) if named else {}
        for named_above in ("load_before", "processor"):
            about.pop(named_above, None)
        machine = ", ".join(f"{key} {value}" for key, value in about.items())
        parts = [table(figures), remarks(figures), "\n".join([*head, *runs]), f"Machine: {machine}."]
        return "\n\n".join(parts) + "\n"

    def save(self, order: Sequence[str]) -> None:
        """Write both files, if there is a folder, in the order of `order`."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / FIGURES).write_text(json.dumps(self.found, indent=2) + "\n")
        (self.folder / TABLE).write_text(self.reported(order))
