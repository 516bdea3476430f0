"""CSV as apps, clouds and instruments export it: their layouts, written here."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Rows, Truth
from tests.file_matrix.writers.sensors import (
    CO2,
    INPUTS,
    ROWS,
    SENSORS,
    STATE,
    TIMES,
    WITHOUT_LAST,
)

EXPORTS = Rows()
SOURCE = "csv:FOLDER/log.csv?label=state"
IN_TABLE = ("training", "infer")


def _export(
    kind: str,
    program: str,
    lines: Iterable[str],
    source: str = SOURCE,
    truth: Truth = SENSORS,
    *,
    end: str = "\n",
    encoding: str = "utf-8",
    last: bool = True,
    **more: Any,
) -> None:
    """A row of a file of these lines; the last one has no end unless `last`."""

    @EXPORTS.row(kind, f"as {program}", source, truth=truth, **more)
    def write(folder: Path) -> None:
        (folder / "log.csv").write_bytes((end.join(lines) + end * last).encode(encoding))


def _comma(value: float) -> str:
    return f"{value}".replace(".", ",")


def _times(form: str) -> list[str]:
    return [time.strftime(form) for time in TIMES]


def _joined(separator: str, header: Sequence[str], times: Sequence[str], *, decimal: str = ".") -> list[str]:
    rows = (
        (time, *(f"{value}".replace(".", decimal) for value in (t, c)), s)
        for time, (t, c, s) in zip(times, ROWS, strict=True)
    )
    return [separator.join(row) for row in [header, *rows]]


TIMED = f"{SOURCE}&time=Time"
HEADER = ("Time", "temperature", "co2", "state")
_export(
    "CSV of a panel",
    "Grafana",
    ['"Time","temperature","co2","state"', *_joined(",", HEADER, _times("%Y-%m-%d %H:%M:%S"))[1:]],
    TIMED,
)
_export(
    "CSV of a panel for Excel, sep=,",
    "Grafana",
    ["sep=,", *_joined(",", HEADER, _times("%Y-%m-%d %H:%M:%S"))],
    TIMED,
)
_export(
    "CSV of a panel, values with units",
    "Grafana",
    [
        "Time,temperature,co2,state",
        *(
            f"{time},{t} °C,{c:g} ppm,{s}"
            for time, (t, c, s) in zip(_times("%Y-%m-%d %H:%M:%S"), ROWS, strict=True)
        ),
    ],
    TIMED,
    intended=dict.fromkeys(IN_TABLE, "ignore=temperature"),
)
_export(
    "CSV of a time series",
    "ThingsBoard",
    _joined(";", ("Timestamp", "temperature", "co2", "state"), _times("%Y-%m-%d %H:%M:%S")),
    f"{SOURCE}&time=Timestamp",
)
_export(
    "CSV of a German sheet, Windows-1252",
    "Excel",
    _joined(";", ("Zeit", "Temperatur °C", "co2", "state"), _times("%d.%m.%Y %H:%M"), decimal=","),
    f"{SOURCE}&time=Zeit",
    end="\r\n",
    encoding="cp1252",
    intended=dict.fromkeys(IN_TABLE, "UTF-8"),
)
_export(
    "CSV of a German sheet, UTF-8",
    "Excel",
    _joined(";", ("Zeit", "Temperatur °C", "co2", "state"), _times("%d.%m.%Y %H:%M"), decimal=","),
    f"{SOURCE}&time=Zeit",
    end="\r\n",
    encoding="utf-8-sig",
)
_export(
    "Unicode text of a sheet, UTF-16 and tabs",
    "Excel",
    _joined("\t", HEADER, _times("%d.%m.%Y %H:%M"), decimal=","),
    TIMED,
    end="\r\n",
    encoding="utf-16",
)
_export(
    "CSV of an American sheet", "Excel", _joined(",", HEADER, _times("%m/%d/%Y %H:%M")), TIMED, end="\r\n"
)
_export(
    "CSV of a sheet, no end of the last line",
    "Google Sheets",
    _joined(",", HEADER, _times("%Y-%m-%d %H:%M:%S")),
    TIMED,
    WITHOUT_LAST,
    end="\r\n",
    last=False,
)
_export(
    "CSV of a sheet, texts in quotes",
    "LibreOffice",
    [
        '"Time","temperature","co2","state"',
        *(f'"{time}",{t},{c},"{s}"' for time, (t, c, s) in zip(_times("%Y-%m-%d %H:%M"), ROWS, strict=True)),
    ],
    TIMED,
)
_export(
    "data of write.csv, row names",
    "R",
    [
        '"","temperature","co2","state"',
        *(f'"{place}",{t},{c},"{s}"' for place, (t, c, s) in enumerate(ROWS, 1)),
    ],
)
_export(
    "data of write.table, one name fewer than values",
    "R",
    ['"temperature","co2","state"', *(f'"{place}",{t},{c},"{s}"' for place, (t, c, s) in enumerate(ROWS, 1))],
)
_export(
    "data of write.csv2",
    "R",
    ['"temperature";"co2";"state"', *(f'{_comma(t)};{_comma(c)};"{s}"' for t, c, s in ROWS)],
)
_export("CSV of writetable", "MATLAB", ["temperature,co2,state", *(f"{t},{c:g},{s}" for t, c, s in ROWS)])
_export(
    "household power, ; and ? for missing",
    "a set of UCI",
    [
        "Date;Time;temperature;co2;state",
        *(
            f"{time:%d/%m/%Y;%H:%M:%S};{'?' if place == 3 else t};{c:.3f};{s}"
            for place, (time, (t, c, s)) in enumerate(zip(TIMES, ROWS, strict=True))
        ),
    ],
    f"{SOURCE}&ignore=Date,Time&missing=drop",
    Truth(np.delete(INPUTS, 3, axis=0), [state for place, state in enumerate(STATE) if place != 3]),
)
_export(
    "air quality, decimal commas, empty columns and rows at the end",
    "a set of UCI",
    [
        "Date;Time;temperature;co2;state;;",
        *(
            f"{time:%d/%m/%Y;%H.%M.%S};{_comma(t)};{c:g};{s};;"
            for time, (t, c, s) in zip(TIMES, ROWS, strict=True)
        ),
        ";;;;;;",
        ";;;;;;",
    ],
    f"{SOURCE}&ignore=Date,Time",
)
_export(
    "occupancy, numbered rows without a name",
    "a set of UCI",
    [
        '"date","temperature","co2","state"',
        *(
            f'"{place}","{time:%Y-%m-%d %H:%M:%S}",{t},{c},"{s}"'
            for place, (time, (t, c, s)) in enumerate(zip(TIMES, ROWS, strict=True), 1)
        ),
    ],
    f"{SOURCE}&time=date",
)
_export(
    "numbers with spaces between, no names",
    "a set of UCI",
    [f"  {t: .7e}  {c: .7e}" for t, c, _ in ROWS],
    "csv:FOLDER/log.csv",
    intended=dict.fromkeys(IN_TABLE, "name"),
)
for name, separator, decimal in (
    ("comma, decimal point", ",", "."),
    ("tab, decimal comma", "\t", ","),
    ("semicolon, decimal comma", ";", ","),
):
    _export(
        f"acceleration, {name}",
        "phyphox",
        [
            separator.join(
                f'"{word}"' for word in ("Time (s)", "Acceleration x (m/s^2)", "Acceleration y (m/s^2)")
            ),
            *(
                separator.join(f"{value:.9E}".replace(".", decimal) for value in (place / 100, t, c))
                for place, (t, c, _) in enumerate(ROWS)
            ),
        ],
        "csv:FOLDER/log.csv?time=Time (s)&window=4&stride=4",
        Truth(INPUTS.reshape(3, 4, 2).transpose(0, 2, 1), ["0"] * 3, task="anomaly"),
    )
_export(
    "acceleration, times in nanoseconds",
    "Sensor Logger",
    [
        "time,seconds_elapsed,z,y,state",
        *(
            f"{1772358600000000000 + place * 9999000},{place * 0.009999},{t},{c},{s}"
            for place, (t, c, s) in enumerate(ROWS)
        ),
    ],
    f"{SOURCE}&time=time&ignore=seconds_elapsed",
)
_export(
    "acceleration",
    "Edge Impulse",
    ["timestamp,accX,accY,state", *(f"{place * 16},{t},{c},{s}" for place, (t, c, s) in enumerate(ROWS))],
    f"{SOURCE}&time=timestamp",
)
_export(
    "traces with units in brackets",
    "Saleae Logic",
    [
        "Time [s],Channel 0,Channel 1,state",
        *(f"{place / 1e6:.9f},{t},{c},{s}" for place, (t, c, s) in enumerate(ROWS)),
    ],
    f"{SOURCE}&time=Time [s]",
)
_export(
    "traces with a line of units",
    "PicoScope",
    [
        "Time,Channel A,Channel B",
        "(ms),(V),(mV)",
        "",
        *(f"{place:.8f},{t:.8f},{c:.8f}" for place, (t, c, _) in enumerate(ROWS)),
    ],
    "csv:FOLDER/log.csv?time=Time",
    intended=dict.fromkeys(IN_TABLE, "line 2"),
)
_export(
    "history of a sensor",
    "Home Assistant",
    [
        "entity_id,state,last_changed",
        *(
            f"sensor.co2,{'unavailable' if place == 5 else value},{time.isoformat()}.000Z"
            for place, (time, value) in enumerate(zip(TIMES, CO2, strict=True))
        ),
    ],
    "csv:FOLDER/log.csv?columns=state&time=last_changed&ignore=entity_id&missing=previous",
    Truth(np.array([*CO2[:5], CO2[4], *CO2[6:]])[:, None], ["0"] * 12, task="anomaly"),
)
_export(
    "day of a plug, units in names",
    "Shelly",
    [
        "Date/time UTC,Energy Wh (A),state",
        *(f"{time:%d/%m/%Y %H:%M},{c},{s}" for time, (_, c, s) in zip(TIMES, ROWS, strict=True)),
    ],
    f"{SOURCE}&time=Date/time UTC",
    Truth(INPUTS[:, 1:], STATE),
)
_export(
    "autumn hour, times with their offsets",
    "a logger in Vienna",
    [
        "Time,temperature,co2,state",
        *(
            f"2026-10-25T02:{(50 + place * 5) % 60:02}:00+0{2 if place < 2 else 1}:00,{t},{c},{s}"
            for place, (t, c, s) in enumerate(ROWS[:6])
        ),
    ],
    TIMED,
    Truth(INPUTS[:6], STATE[:6]),
)
_export(
    "days in the order of day and month",
    "a logger in Vienna",
    [
        "Time,temperature,co2,state",
        *(
            f"{'30.11.2026' if place < 6 else '01.12.2026'} {(23 if place < 6 else 0):02}:{place % 6 * 10:02},{t},{c},{s}"
            for place, (t, c, s) in enumerate(ROWS)
        ),
    ],
    TIMED,
)
_export(
    "a gap of six hours, windows",
    "a logger that slept",
    [
        "Time,temperature,co2",
        *(
            f"2026-03-01 {9 + (6 if place >= 6 else 0):02}:{place:02}:00,{t},{c}"
            for place, (t, c, _) in enumerate(ROWS)
        ),
    ],
    "csv:FOLDER/log.csv?time=Time&window=4",
    Truth(np.stack([INPUTS[start : start + 4].T for start in (0, 1, 2, 6, 7, 8)]), ["0"] * 6, task="anomaly"),
)
_export(
    "lines of a serial port without names",
    "Arduino",
    [f"{t},{c},{s}" for t, c, s in ROWS],
    SOURCE,
    intended=dict.fromkeys(IN_TABLE, "has no column 'state'"),
)
_export(
    "two columns of one name",
    "a logger",
    ["temperature,temperature,state", *(f"{t},{c},{s}" for t, c, s in ROWS)],
    SOURCE,
    intended=dict.fromkeys(IN_TABLE, "rename one"),
)
