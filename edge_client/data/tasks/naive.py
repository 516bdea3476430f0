"""What a forecast has to beat: "no change", and "the same as a season ago" (Hyndman and Athanasopoulos 2021,
section 5.2).

The season is found in the data: the number of rows at which the error of repeating the past, which grows
with the distance, has fallen again. Windows shorter than a season have none.
"""

import re
from collections.abc import Sequence

import numpy as np

from edge_client.data.tasks.learning_task import Array

NO_CHANGE, SEASON_AGO = 0, 1
LABEL = re.compile(r"(?P<column>.*)\+(?P<step>\d+)(?P<change> change)?")
"""The name of a table's label that is forecast: `co2+1`, `co2+1 change`."""
FALLEN = 0.8  # the error at a season over the largest one at a shorter distance
MAX_EXAMPLES = 2000  # examples from which the season is found


def naive_forecasts(inputs: Array, labels: Array, names: Sequence[str], columns: Sequence[str]) -> Array:
    """Both forecasts [N, 2, L] of labels [N, L] called `names`, from windows [N, columns, window].

    NaN where a label is no forecast of a column that is an input, or where no season is found.
    """
    made = np.full((len(inputs), 2, len(names)), np.nan)
    found = [LABEL.fullmatch(name) for name in names]
    if inputs.ndim != 3 or labels.shape != (len(inputs), len(names)):
        return made
    for place, match in enumerate(found):
        if match is None or match["column"] not in columns:
            continue
        series, step = inputs[:, columns.index(match["column"])].astype(np.float64), int(match["step"])
        offset = series[:, -1] if match["change"] else np.zeros(len(series))
        made[:, NO_CHANGE, place] = series[:, -1] - offset
        first = names.index(f"{match['column']}+1{match['change'] or ''}")
        season = _season(series, labels[:, first] + offset)
        if season and (back := -(-step // season) * season - step + 1) <= series.shape[1]:
            made[:, SEASON_AGO, place] = series[:, -back] - offset
    return made


def _season(series: Array, following: Array) -> int:
    """The season of windows [N, window] and the value [N] behind each, in rows; 0 without one."""
    chosen = slice(None, None, max(1, len(series) // MAX_EXAMPLES))
    # By distance from 1 on.
    errors = np.abs(series[chosen, ::-1] - following[chosen, None]).mean(0)
    fallen = np.flatnonzero(errors <= FALLEN * np.maximum.accumulate(errors))
    return int(fallen[errors[fallen].argmin()]) + 1 if len(fallen) else 0
