"""CSV as sheets, clouds, apps and instruments export it: their layouts, written here."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Rows, Truth, make_old, refused
from tests.file_matrix.writers.sensors import INPUTS, ROWS, SENSORS, STATE, TIMES, WITHOUT_LAST

EXPORTS = Rows()
LABEL = "label=state"
TIMED = f"{LABEL}&time=Time"


def _export(
    kind: str,
    program: str,
    header: str,
    form: str,
    options: str = LABEL,
    truth: Truth = SENSORS,
    *,
    end: str = "\n",
    encoding: str = "utf-8",
    after: str | None = None,
    old: bool = False,
    **more: Any,
) -> None:
    """A row of a file with this header, and the form filled by each row of the sensors.

    The form has the row's number `n`, its `time`, temperature `t`, CO2 `c` and state `s`; `tc` and `cc` have
    decimal commas. `after` stands behind the last row, a line end by default. An `old` file is of an hour
    ago.
    """
    rows = (
        form.format(n=n, time=time, t=t, c=c, s=s, tc=_comma(t), cc=_comma(c))
        for n, (time, (t, c, s)) in enumerate(zip(TIMES, ROWS, strict=True))
    )
    text = end.join([header, *rows] if header else rows) + (end if after is None else after)

    @EXPORTS.row(kind, f"as {program}", f"csv:FOLDER/log.csv?{options}", truth=truth, **more)
    def write(folder: Path) -> None:
        (folder / "log.csv").write_bytes(text.encode(encoding))
        if old:
            make_old(folder / "log.csv")


def _comma(value: float) -> str:
    return f"{value}".replace(".", ",")


ISO = "{time:%Y-%m-%d %H:%M:%S}"
GERMAN = "{time:%d.%m.%Y %H:%M};{tc};{cc};{s}"
GERMAN_NAMES = "Zeit;Temperatur °C;co2;state"
NAMES = "Time,temperature,co2,state"
QUOTED = '"temperature","co2","state"'
_export("CSV of a panel", "Grafana", f'"Time",{QUOTED}', ISO + ",{t},{c},{s}", TIMED)
_export("CSV of a panel for Excel, sep=,", "Grafana", f"sep=,\n{NAMES}", ISO + ",{t},{c},{s}", TIMED)
_export(
    "CSV of a panel, values with their units",
    "Grafana",
    NAMES,
    ISO + ",{t} °C,{c} ppm,{s}",
    TIMED,
    intended=refused("ignore=temperature"),
)
_export("CSV of a time series", "ThingsBoard", NAMES.replace(",", ";"), ISO + ";{t};{c};{s}", TIMED)
GERMAN_SHEET = ("CSV of a German sheet", "Excel", GERMAN_NAMES, GERMAN)
_export(*GERMAN_SHEET, f"{LABEL}&time=Zeit", end="\r\n", encoding="utf-8-sig")
_export(
    "CSV of a German sheet, Windows-1252",
    *GERMAN_SHEET[1:],
    f"{LABEL}&time=Zeit",
    end="\r\n",
    encoding="cp1252",
    intended=refused("encoding=cp1252"),
)
_export(
    "CSV of a German sheet, Windows-1252, stated",
    *GERMAN_SHEET[1:],
    f"{LABEL}&time=Zeit&encoding=cp1252",
    end="\r\n",
    encoding="cp1252",
)
_export(
    "Unicode text of a sheet, UTF-16 and tabs",
    "Excel",
    NAMES.replace(",", "\t"),
    GERMAN.replace(";", "\t"),
    TIMED,
    end="\r\n",
    encoding="utf-16",
)
AMERICAN = (NAMES, "{time:%m/%d/%Y %H:%M},{t},{c},{s}")
STATED = refused("state time-format=")
_export("CSV of an American sheet", "Excel", *AMERICAN, TIMED, end="\r\n", intended=STATED)
_export("CSV of an American sheet, stated", "Excel", *AMERICAN, f"{TIMED}&time-format=%m/%d/%Y %H:%M")
SHEET = (NAMES, ISO + ",{t},{c},{s}", TIMED)
_export("CSV, no end of the last line, new", "Google Sheets", *SHEET, WITHOUT_LAST, end="\r\n", after="")
_export("CSV, no end of the last line, old", "Google Sheets", *SHEET, end="\r\n", after="", old=True)
_export("CSV, texts in quotes", "LibreOffice", f'"Time",{QUOTED}', f'"{ISO}",{{t}},{{c}},"{{s}}"', TIMED)
_export("write.csv, row names", "R", f'"",{QUOTED}', '"{n}",{t},{c},"{s}"')
_export("write.table, a name fewer than values", "R", QUOTED, '"{n}",{t},{c},"{s}"')
_export("write.csv2", "R", QUOTED.replace(",", ";"), '{tc};{cc};"{s}"')
_export("writetable", "MATLAB", "temperature,co2,state", "{t},{c:g},{s}")
_export(
    "household power, ; and dates",
    "a set of UCI",
    "Date;Time;temperature;co2;state",
    "{time:%d/%m/%Y;%H:%M:%S};{t};{c:.3f};{s}",
    f"{LABEL}&ignore=Date,Time",
)
for options, more in (("", {"intended": refused("state decimal=,")}), ("&decimal=,", {})):
    _export(
        f"air quality, empty columns and rows at the end{', stated' * bool(options)}",
        "a set of UCI",
        "Date;Time;temperature;co2;state;;",
        "{time:%d/%m/%Y;%H.%M.%S};{tc};{c:g};{s};;",
        f"{LABEL}&ignore=Date,Time{options}",
        after="\n;;;;;;\n;;;;;;\n",
        **more,
    )
_export(
    "occupancy, numbered rows without a name",
    "a set of UCI",
    f'"date",{QUOTED}',
    f'"{{n}}","{ISO}",{{t}},{{c}},"{{s}}"',
    f"{LABEL}&time=date",
)
NAMELESS = refused("name the columns in its first line")
_export("numbers with spaces, no names", "a set of UCI", "", "  {t: .7e}  {c: .7e}", "", intended=NAMELESS)
_export("numbers with commas, no names", "a set of UCI", "", "{t},{c}", "", intended=NAMELESS)
WINDOWS = Truth(INPUTS.reshape(3, 4, 2).transpose(0, 2, 1), ["0"] * 3, task="anomaly")
for separator, comma, name in ((",", "", "decimal points"), ("\t", "c", "tabs"), (";", "c", "semicolons")):
    _export(
        f"acceleration, {name}",
        "phyphox",
        separator.join(('"Time (s)"', '"Acceleration x (m/s^2)"', '"Acceleration y (m/s^2)"')),
        separator.join(("{n}.5E-2" if not comma else "{n},5E-2", f"{{t{comma}}}", f"{{c{comma}}}")),
        "time=Time (s)&window=4&stride=4",
        WINDOWS,
    )
_export(
    "acceleration, nanoseconds",
    "Sensor Logger",
    "time,seconds_elapsed,z,y,state",
    "17723586{n:02}009999000,{n}.0099,{t},{c},{s}",
    f"{LABEL}&time=time&ignore=seconds_elapsed",
)
_export(
    "acceleration", "Edge Impulse", "timestamp,accX,accY,state", "{n}6,{t},{c},{s}", f"{LABEL}&time=timestamp"
)
_export(
    "traces with units in brackets",
    "Saleae Logic",
    "Time [s],Channel 0,Channel 1,state",
    "0.0000{n:02}000,{t},{c},{s}",
    f"{LABEL}&time=Time [s]",
)
_export(
    "traces with a line of units",
    "PicoScope",
    "Time,Channel A,Channel B\n(ms),(V),(mV)\n",
    "{n}.0,{t:.8f},{c:.8f}",
    "time=Time",
    intended=refused("line 2"),
)
_export(
    "history of a sensor",
    "Home Assistant",
    "entity_id,state,last_changed",
    "sensor.co2,{c},{time:%Y-%m-%dT%H:%M:%S}.000Z",
    "columns=state&time=last_changed&ignore=entity_id",
    Truth(INPUTS[:, 1:], ["0"] * len(STATE), task="anomaly"),
)
PLUG = ("Date/time UTC,Energy Wh (A),state", "{time:%d/%m/%Y %H:%M},{c},{s}")
ENERGY = Truth(INPUTS[:, 1:], STATE)
PLUG_TIME = f"{LABEL}&time=Date/time UTC"
_export("history of a plug", "Shelly", *PLUG, PLUG_TIME, ENERGY, intended=STATED)
_export("history of a plug, stated", "Shelly", *PLUG, f"{PLUG_TIME}&time-format=%d/%m/%Y %H:%M", ENERGY)
_export(
    "lines of a serial port, no names", "Arduino", "", "{t},{c},{s}", intended=refused("no column 'state'")
)
_export("two columns of one name", "a logger", "x,x,state", "{t},{c},{s}", intended=refused("rename one"))


def _series(kind: str, times: list[str], truth: Truth, options: str) -> None:
    """A row of measurements at these times, as a logger writes them."""

    @EXPORTS.row(kind, "as a logger", f"csv:FOLDER/log.csv?time=time&{options}", truth=truth)
    def write(folder: Path) -> None:
        lines = [f"{time},{t},{c},{s}\n" for time, (t, c, s) in zip(times, ROWS, strict=False)]
        (folder / "log.csv").write_text("".join(["time,temperature,co2,state\n", *lines]))


_series(
    "the autumn hour, times with their offsets",
    [f"2026-10-25T02:{minute:02}:00+0{offset}:00" for offset in (2, 1) for minute in (50, 55, 58)],
    Truth(INPUTS[:6], STATE[:6]),
    LABEL,
)
_series(
    "from November to December, days before months",
    [f"30.11.2026 23:{n}0" for n in range(6)] + [f"01.12.2026 00:{n}0" for n in range(6)],
    SENSORS,
    LABEL,
)
_series(
    "a gap of six hours, windows",
    [f"2026-03-01 {9 + 6 * (n >= 6):02}:{n:02}:00" for n in range(12)],
    Truth(np.stack([INPUTS[n : n + 4].T for n in (0, 1, 2, 6, 7, 8)]), ["0"] * 6, task="anomaly"),
    "window=4&ignore=state",
)
