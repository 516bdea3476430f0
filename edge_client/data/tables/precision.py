"""What float32, in which networks compute, loses of a table's numbers."""

import logging

import numpy as np

from edge_client.data.said_once import say_once
from edge_client.data.tables.values import Numbers

MAX_LOST = 0.01
"""Share of a column's steps that may be lost in float32, in which networks compute, without a warning."""


def warn_if_coarse(column: Numbers, where: str, remedy: str) -> None:
    """Warn once of a column whose steps from row to row are lost in float32."""
    steps = np.diff(column) != 0
    lost = np.count_nonzero(steps & (np.diff(column.astype(np.float32)) == 0))
    if lost > MAX_LOST * np.count_nonzero(steps):
        largest = np.abs(column).max()
        say_once(
            f"{where}: networks (float32) tell its largest values apart in steps of "
            f"{np.spacing(np.float32(largest)):.3g}, and {lost} smaller ones are lost: {remedy}, or leave it "
            "out",
            logging.WARNING,
        )
