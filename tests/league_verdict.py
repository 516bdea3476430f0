"""Compares the league's reference with each of its rivals over all settings of the committed tables.

    python -m tests.league_verdict [ROW]

prints, for each other row, in how many settings ROW (default: attending) is above, level with and below it,
on the whole model and on the mean tier, and the mean difference in each setting with its 95 % interval over
the seeds that both have. Of a run that stands in several tables the last one of `TABLES` counts.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from edge_server.simulation.experiments.ended_runs import read_text
from edge_server.simulation.experiments.league_scores import ABOVE, BELOW, LEVEL, MEASURES, Score, difference

RESULTS = Path(__file__).parent / "edge_server/simulation/experiments/results"
TABLES = (
    "league",
    "league-further",
    "league-ten",
    "league-attending",
    "league-further-attending",
    "league-more-seeds",
    "league-networks",
    "league-networks-more",
    "league-hundred",
    "league-two-nn",
    "league-resnet",
    "league-resnet-more",
)
"""The tables from the oldest to the newest."""
LENGTHS = {"league-hundred": ", 100 rounds"}
"""What distinguishes a table's settings from those of the same name in others."""

Rows = dict[str, dict[int, Score]]


def settings() -> dict[str, Rows]:
    """The scores by setting, row and seed."""
    found: dict[str, Rows] = {}
    for table in TABLES:
        lines = json.loads(read_text(RESULTS / table / "results.json"))["scores"]
        for line in lines:
            rows = found.setdefault(line["column"] + LENGTHS.get(table, ""), {})
            score = Score(line["whole"], tuple(line["tiers"]), 0, 0)
            rows.setdefault(line["row"], {})[line["seed"]] = score
    return found


def verdicts(row: str, found: Mapping[str, Rows]) -> Iterator[tuple[str, str, Counter[str], dict[str, str]]]:
    """For each other row and measure, how many settings are above, level and below, and the differences."""
    rivals = dict.fromkeys(name for rows in found.values() for name in rows if name != row)
    for rival in rivals:
        for name, measure in MEASURES.items():
            known = {
                setting: difference(rows[row], rows[rival], measure)
                for setting, rows in found.items()
                if row in rows and rival in rows
            }
            differences = {setting: each for setting, each in known.items() if each is not None}
            counts = Counter(each.verdict for each in differences.values())
            yield rival, name, counts, {setting: str(each) for setting, each in differences.items()}


def main() -> None:
    """Print them."""
    row = sys.argv[1] if len(sys.argv) > 1 else "attending"
    for rival, measure, counts, differences in verdicts(row, settings()):
        if counts:
            above, level, below = (counts[word] for word in (ABOVE, LEVEL, BELOW))
            print(f"{rival}, {measure}: above {above}, level {level}, below {below}")
            for setting, written in differences.items():
                print(f"    {setting}: {written}")


if __name__ == "__main__":
    main()
