"""Tables on two devices: the columns of a second file are mapped by name, or refused."""

import json
from pathlib import Path
from typing import Any

from tests.file_matrix.rows import Rows, refused
from tests.file_matrix.writers.sensors import COLUMNS, SENSORS

COLUMN_ORDERS = Rows()
SWAPPED = ("state", "co2", "temperature")


def _pair(kind: str, source: str, second: dict[str, Any], save: str, ending: str, **more: Any) -> None:
    """Training on `a`, `infer` on `b`, which has the columns of `second`; `serve` gets values by name."""
    paths = [f"{source}:FOLDER/{name}.{ending}?label=state" for name in "ab"]

    @COLUMN_ORDERS.row(kind, "pandas", paths[0], truth=SENSORS, asked=paths[1], requests="*.json", **more)
    def write(folder: Path) -> None:
        import pandas

        for name, columns in (("a", COLUMNS), ("b", second)):
            getattr(pandas.DataFrame(columns), save)(folder / f"{name}.{ending}", index=False)
        rows = pandas.DataFrame(second).drop(columns="state").to_dict("records")
        (folder / "values.json").write_text(json.dumps({"values": rows}))


OTHER_ORDER = {name: COLUMNS[name] for name in SWAPPED}
_pair("CSV, columns in another order", "csv", OTHER_ORDER, "to_csv", "csv")
_pair("Parquet, columns in another order", "parquet", OTHER_ORDER, "to_parquet", "parquet")
RENAME = refused("rename them, or choose a table's by columns= or ignore=")
for kind, second in (
    ("a column more", {"light": COLUMNS["co2"], **COLUMNS}),
    ("a column less", {name: COLUMNS[name] for name in ("co2", "state")}),
    ("a column of another name", {name.replace("co2", "CO2"): COLUMNS[name] for name in COLUMNS}),
):
    intended = {path: why for path, why in RENAME.items() if path != "training"}
    _pair(f"CSV, {kind}", "csv", second, "to_csv", "csv", intended=intended)
