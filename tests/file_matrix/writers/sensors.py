"""The measurements that all writers of tables store: twelve rows of two columns, and a class."""

from datetime import datetime, timedelta
from typing import Any

import numpy as np

from tests.file_matrix.rows import Truth

TEMPERATURE = (18.25, 18.5, 21.75, 22.0, 19.125, 21.5, -2.5, 23.25, 17.0, 22.875, 18.0, 21.0)
CO2 = (412.0, 430.5, 981.25, 1020.0, 455.0, 893.5, 401.0, 1204.75, 398.0, 1100.0, 421.0, 870.5)
STATE = ("free", "free", "busy", "busy", "free", "busy", "free", "busy", "free", "busy", "free", "busy")
START = datetime(2026, 3, 1, 9, 50)
TIMES = tuple(START + timedelta(minutes=n) for n in range(len(STATE)))
COLUMNS: dict[str, tuple[Any, ...]] = {"temperature": TEMPERATURE, "co2": CO2, "state": STATE}
ROWS = tuple(zip(*COLUMNS.values(), strict=True))
TIMED = {"time": TIMES, **COLUMNS}
INPUTS = np.column_stack([TEMPERATURE, CO2])
SENSORS = Truth(INPUTS, STATE)
"""What all their files mean."""
WITHOUT_LAST = Truth(INPUTS[:-1], STATE[:-1])
"""The same while the last row is not complete."""


def windows(series: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """All windows [N, columns, length] of a series [rows, columns]."""
    return np.stack([series[start : start + length].T for start in range(len(series) - length + 1)])


def filtered(frame: Any) -> Any:
    """A pandas frame with the same rows, whose numbers have gaps since two others were left out."""
    import pandas

    other = frame[:1].assign(co2=9999.0)
    longer = pandas.concat([frame[:2], other, frame[2:7], other, frame[7:]], ignore_index=True)
    return longer[longer["co2"] < 9000]
