"""Labels that come later than their examples, in a file of their own."""

import logging
from pathlib import Path

import numpy as np

from edge_client.data.tables import Column, CsvTable, TablePlan, read_columns
from schemas.errors import ConfigError

log = logging.getLogger(__name__)


def late_labels(path: Path, ids: Column, *, ident: str, label: str) -> Column:
    """The labels [N] of the examples with these ids [N], "" where there is none yet.

    The file has the columns `ident` and `label`; of an id that occurs twice, the last line counts. Labels
    without an example are counted in the log. Raises `ConfigError` if no label names an example.
    """
    read = read_columns(CsvTable(path), TablePlan(numbers=(), texts=(ident, label)))
    known = dict(zip(read[ident].tolist(), read[label].tolist(), strict=True))
    strangers = sorted(known.keys() - set(ids.tolist()))
    if len(strangers) == len(known):
        raise ConfigError(
            f"{path}: none of {len(known)} labels names an example, the first is for '{strangers[0]}': "
            f"compare its column '{ident}' with that of the examples, which begins with '{ids[0]}'"
        )
    if strangers:
        log.warning("%s: %d labels name no example, such as '%s'", path, len(strangers), strangers[0])
    return np.array([known.get(name, "") for name in ids.tolist()])
