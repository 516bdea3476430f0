"""Labels that come later than their examples, in a file of their own."""

import logging
import math
from collections.abc import Sequence

import numpy as np

from edge_client.data.tables.plan import Column, TablePlan
from edge_client.data.tables.rows import read_rows
from edge_client.data.tables.table import Table
from schemas.counted import counted
from schemas.errors import ConfigError

log = logging.getLogger(__name__)


def late_labels(table: Table, ids: Sequence[str], *, ident: str, label: str) -> Column:
    """The labels [N] of the examples with these ids [N], "" or NaN where there is none yet.

    The table has the columns `ident` and `label`; of an id that occurs twice, the last line counts. Labels
    without an example are counted in the log. Raises `ConfigError` if no label names an example.
    """
    read = read_rows(table, TablePlan(labels=(label,), texts=(ident,), sparse=(label,))).columns
    none = "" if read[label].dtype.kind == "U" else math.nan
    is_given = read[label] == read[label] if none != "" else read[label] != ""
    known = dict(zip(read[ident][is_given].tolist(), read[label][is_given].tolist(), strict=True))
    strangers = sorted(known.keys() - set(ids))
    if known and len(strangers) == len(known):
        raise ConfigError(
            f"{table.path}: none of {counted(len(known), 'label')} names an example: compare its column "
            f"'{ident}' with that of the examples",
            quoted=f"'{strangers[0]}' here, '{ids[0]}' there",
        )
    if strangers:
        log.warning("%s: no example for %s", table.path, counted(len(strangers), "label"))
    return np.array([known.get(name, none) for name in ids])
