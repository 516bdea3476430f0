"""No text of the data is in what a device logs, reports or declines with; its user's terminal quotes it."""

import io
import json
import logging
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from edge_client.agent import local_source
from edge_client.agent.local_source import DataChoice, LocalSource
from edge_client.agent.presence import card_of
from edge_client.agent.remote.collection import Collector
from edge_client.agent.settings import AgentSettings
from edge_client.cli.main import EDGE_CLIENT
from edge_client.data.classes import misfit
from edge_client.data.said_once import say_once
from edge_client.data.sources import SOURCES
from edge_client.data.tables.kinds import TABLES
from edge_client.system.logging.formatters import JsonFormat, stack_of
from edge_client.system.logging.setup import RecentLog
from edge_client.transport.broker_link import BrokerAddress
from schemas.errors import ConfigError, PeerError, in_full
from schemas.messages import DiagnosticRequest
from schemas.messages.remote import Diagnostic
from schemas.values import CapabilityProfile
from tests.edge_client.agent.session.by_hand import DEVICE, FEDERATION, task
from tests.edge_client.data.pictures.box_samples import source_of, write_pictures
from tests.edge_client.data.sounds.sound_bytes import pcm, tone, wav_bytes
from tests.edge_client.data.tables import test_home_assistant_source, test_influx_source
from tests.edge_client.data.tables.table_files import write_table
from tests.edge_client.data.tables.test_recording_sources import acquisition, write

SECRET = "Mrs Quill has diabetes"
NAMES = ("t", "x", "y", "who")
ROWS = [[10 * row, row / 4, row % 3 + row / 8, f"id{row}"] for row in range(12)]
OPTIONS = ("", "label=y", "label=y&kind=numbers", "time=t&label=y&ignore=who", "ignore=who&missing=drop",
           "columns=x,who", "label=y&window=2&horizon=1&ignore=who", "label=y&group=x&time=t&ignore=who",
           "label=y&sequence=x", "label=state&id=who&labels=FOLDER/late.csv")  # fmt: skip
Sources = Iterator[str]


def _tables(kind: str, folder: Path) -> Sources:
    """Every column with the secret in one row, of CSV in all too, read with each of the options."""
    (folder / "late.csv").write_text(f"who,state\n{SECRET},1\n")
    for column in range(len(NAMES)):
        for places in ({5}, set(range(12)))[: 2 if kind == "csv" else 1]:
            rows = [
                [SECRET if at == column and place in places else value for at, value in enumerate(row)]
                for place, row in enumerate(ROWS)
            ]
            # A column of Parquet and Arrow has one kind of value.
            texts = [[str(v) if at == column else v for at, v in enumerate(row)] for row in rows]
            (folder / f"table.{kind}").unlink(missing_ok=True)
            path = _write(kind, folder, texts)
            yield from (f"{kind}:{path}?{options.replace('FOLDER', str(folder))}" for options in OPTIONS)


def _write(kind: str, folder: Path, rows: Sequence[Sequence[Any]]) -> Path:
    if kind == "jsonl":
        path = folder / "table.jsonl"
        path.write_text("".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows))
        return path
    path = write_table("parquet" if kind in ("arrow", "feather") else kind, folder, NAMES, rows)
    if kind in ("arrow", "feather"):
        from pyarrow import feather, parquet

        feather.write_feather(parquet.read_table(path), folder / "table.feather", compression="uncompressed")
        return folder / "table.feather"
    return path


def _sqlite(folder: Path) -> Sources:
    yield from _tables("sqlite", folder)
    with closing(sqlite3.connect(folder / "damaged.db")) as made, made:
        made.execute("CREATE TABLE t (x, y)")
        made.execute("INSERT INTO t VALUES (1, CAST(? AS TEXT))", (SECRET.encode() + b"\xff",))
    yield f"sqlite:{folder / 'damaged.db'}?label=y"


def _csv(folder: Path) -> Sources:
    yield from _tables("csv", folder)
    path = folder / "other.csv"
    for text in (f"x;y\n1,5;2\n2,5;{SECRET}\n", f'x,y\n1,2\n"{SECRET}\n', f"x,y\n1,2\n{SECRET},3,4\n",
                 f"x,y\n1,2\n{SECRET}\0,3\n", f"x,y\n1,{SECRET}\xff\n",
                 f"1.5,{SECRET}\n2.5,b\n"):  # fmt: skip
        path.write_bytes(text.encode("latin-1"))
        yield f"csv:{path}?label=y"


def _jsonl(folder: Path) -> Sources:
    yield from _tables("jsonl", folder)
    for text in (f'{{"x": 1}}\n{{"x": {SECRET}}}\n{{"x": 2}}\n', f'"{SECRET}"\n', f'{{"x": ["{SECRET}"]}}\n'):
        (folder / "other.jsonl").write_text(text)
        yield f"jsonl:{folder / 'other.jsonl'}"


def _recorded(folder: Path) -> Sources:
    with closing(sqlite3.connect(folder / "store.sqlite")) as made, made:
        made.execute("CREATE TABLE examples (seq INTEGER PRIMARY KEY, id, at, series, rank, label, x)")
        made.executemany(
            "INSERT INTO examples VALUES (?, ?, ?, 1, 0, ?, ?)",
            [(place, SECRET, place, str(place % 2), SECRET if place == 3 else 1) for place in range(9)],
        )
    yield from (f"recorded:{folder / 'store.sqlite'}?{options}" for options in ("", "label=label"))
    (folder / "text.sqlite").write_text(SECRET * 100)
    yield f"recorded:{folder / 'text.sqlite'}"


def _homeassistant(folder: Path) -> Sources:
    path = folder / "home.db"
    with closing(sqlite3.connect(path)) as made, made:
        made.executescript(test_home_assistant_source.SCHEMA)
        for number, name in enumerate(("sensor.a", "sensor.b"), 1):
            made.execute("INSERT INTO states_meta VALUES (?, ?)", (number, name))
        for place in range(8):
            state = SECRET if place == 4 else str(place)
            row = (state, float(place), place % 2 + 1)
            made.execute("INSERT INTO states (state, last_updated_ts, metadata_id) VALUES (?, ?, ?)", row)
    yield from (f"homeassistant:{path}?entities=sensor.a,sensor.b{more}" for more in ("", "&label=sensor.b"))
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("UPDATE states SET state = CAST(? AS TEXT)", (SECRET.encode() + b"\xff",))
    yield f"homeassistant:{path}?entities=sensor.a"


def _influxdb(folder: Path) -> Sources:
    path, whole = folder / "answer.csv", test_influx_source.answer("\n")
    for text in (
        *(
            whole.replace(value, SECRET)
            for value in ("20.5", "410", "2026-11-28T00:00:00.000000001Z", "attic")
        ),
        f"#datatype,string,string\n#group,true,true\n#default,,\n,error,reference\n,{SECRET},897\n",
        f"{whole},{SECRET},1\n",
    ):
        path.write_text(text)
        yield from (f"influxdb:{path}{more}" for more in ("", "?label=state"))


def _senml(folder: Path) -> Sources:
    path = folder / "pack.json"
    usual = {"n": "a", "t": 1, "v": 2}
    for bad in ({"v": SECRET}, {"t": SECRET}, {"vs": SECRET}, {"s": SECRET}, {"vb": SECRET}):
        path.write_text(json.dumps([usual, {"n": "a", "t": 2} | bad, {"n": "b", "t": 2, "v": 1}]))
        yield from (f"senml:{path}{more}" for more in ("", "?label=b"))
    path.write_text(f"[{SECRET}]")
    yield f"senml:{path}"


def _edgeimpulse(folder: Path) -> Sources:
    path = folder / "idle.json"
    for file in (
        *(acquisition(values) for values in ([[1, 2, SECRET]], [SECRET], SECRET, [[1, 2, 3], {SECRET: 1}])),
        acquisition([[1, 2, 3]], step=SECRET),
        {"payload": SECRET},
        {"payload": {"sensors": [SECRET], "values": []}},
    ):
        write(path, file)
        yield f"edgeimpulse:{path}"
    write(path, acquisition([[1, 2, 3]] * 3))
    for labels in ({"files": SECRET}, {"files": [{"path": 1, "label": SECRET}]}, SECRET):
        (folder / "info.labels").write_text(json.dumps(labels))
        yield f"edgeimpulse:{folder}?label=label"


def _mat(folder: Path) -> Sources:
    from scipy import io as scipy_io

    path = folder / "a.mat"
    scipy_io.savemat(path, {"note": SECRET, "x": np.arange(9.0), "mixed": np.array([SECRET, 1], object)})
    yield f"mat:{path}"
    whole = path.read_bytes()
    for data in (SECRET.encode() * 20, whole[:200], whole[:128] + SECRET.encode() * 9, whole[:-30]):
        path.write_bytes(data)
        yield f"mat:{path}"


def _npz(folder: Path) -> Sources:
    path, images = folder / "a.npz", np.zeros((4, 3, 3), np.uint8)
    for labels in (np.array([SECRET] * 4), np.array([SECRET, 1, 2, 3], object), np.array([0, 1, 0, np.nan])):
        np.savez(path, images=images, labels=labels)
        yield f"npz:{path}"
    np.savez(path, images=np.array([[SECRET]] * 4), labels=np.arange(4))
    yield f"npz:{path}"
    header = f"{{'descr': {SECRET}}}".ljust(117) + "\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    import zipfile

    with zipfile.ZipFile(path, "w") as made:
        made.writestr("images.npy", array)
        made.writestr("labels.npy", array)
    yield f"npz:{path}"
    path.write_text(SECRET)
    yield f"npz:{path}"


def _folder(folder: Path) -> Sources:
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Title", SECRET)
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG", pnginfo=notes)
    whole = file.getvalue()
    at = whole.index(b"IDAT")
    for data in (
        SECRET.encode(),
        whole[:-20],
        whole[: at - 4] + SECRET.encode() + whole[at:],
        f"P6\n{SECRET}\n".encode(),
        f"P3\n2 2\n255\n{SECRET}\n".encode(),
        f"/* XPM */\n{SECRET}".encode(),
    ):
        for name in ("cat", "dog"):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / "a.png").write_bytes(data)
        yield f"folder:{folder}"


def _boxes(kind: str, folder: Path) -> Sources:
    """The secret in place of a number, of all, and of the file; names of classes are part of the protocol."""
    write_pictures(kind, folder)
    files = [path for path in folder.rglob("*") if path.suffix in (".txt", ".xml", ".json")]
    for path in files:
        whole = path.read_text()
        for text in (SECRET, whole.replace("5", SECRET, 1), whole.replace("5", SECRET), whole[:-9] + SECRET):
            path.write_text(text)
            yield f"{kind}:{source_of(kind, folder)}"
        path.write_text(whole)
    for path in files:
        path.write_text(SECRET)
    yield f"{kind}:{source_of(kind, folder)}"


def _wav(folder: Path) -> Sources:
    sound = wav_bytes(pcm(tone(440, 0.2), 16))
    for name in ("low", "high"):
        (folder / name).mkdir()
        (folder / name / "b.wav").write_bytes(sound)
    for data in (SECRET.encode(), sound[:30], sound[:12] + SECRET.encode() + sound[12:], sound[:44]):
        (folder / "low" / "a.wav").write_bytes(data)
        (folder / "high" / "a.wav").write_bytes(data)
        yield f"wav:{folder}?seconds=0.1"


def _python(folder: Path) -> Sources:
    yield from (f"python:{__name__}:{function.__name__}" for function in (fails, misses, answers, says))


def fails() -> Any:
    return [float(part) for part in SECRET.split(",")]


def misses() -> Any:
    return {}[SECRET]


def answers() -> Any:
    return np.zeros((2, 3)), np.array([SECRET, SECRET])


def says() -> Any:
    return SECRET


CASES: dict[str, Callable[[Path], Sources]] = {
    "csv": _csv, "jsonl": _jsonl, "sqlite": _sqlite, "recorded": _recorded, "homeassistant": _homeassistant,
    **{kind: (lambda folder, kind=kind: _tables(kind, folder)) for kind in ("parquet", "arrow", "feather")},
    "influxdb": _influxdb, "senml": _senml, "edgeimpulse": _edgeimpulse, "mat": _mat, "npz": _npz,
    "folder": _folder, "wav": _wav, "python": _python,
    **{kind: (lambda folder, kind=kind: _boxes(kind, folder)) for kind in ("yolo", "voc", "coco")},
}  # fmt: skip


def test_every_kind_of_source_has_its_cases() -> None:
    assert CASES.keys() == {name for name, kind in SOURCES.items() if kind.of_files or kind.is_function}
    assert CASES.keys() >= TABLES.keys()


@pytest.mark.parametrize("kind", CASES)
def test_no_text_of_the_data_is_logged_or_reported(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    recent, refused = RecentLog(tmp_path / "state"), 0
    for source in CASES[kind](tmp_path):
        say_once.cache_clear()
        caplog.clear()
        card = classes = ""
        try:
            data = LocalSource(DataChoice(source)).read()
        except ConfigError as error:
            refused += 1
            logging.getLogger(__name__).error("%s", error, exc_info=error)
        else:
            classes = " ".join(data.train.class_names)
            card = card_of(data, source="").model_dump_json()
            try:
                data.check(task())
            except PeerError as declined:
                card += str(declined)
        # Labels that are read as the names of classes are part of the protocol.
        if SECRET not in classes:
            said = "\n".join([card, *map(JsonFormat().format, caplog.records)])
            assert not tells(said), f"{source}: {said}"
            for record in caplog.records:
                recent.emit(record)
    assert refused
    assert not tells(diagnostics(tmp_path / "state"))


def tells(text: str) -> bool:
    """Whether a word of the secret is in the text."""
    return any(word in text for word in SECRET.split() if len(word) > 3)


def diagnostics(state: Path) -> str:
    """What `edge-server logs` gets of a device with this state folder."""
    address, profile = BrokerAddress("nowhere", 1), CapabilityProfile()
    settings = AgentSettings(FEDERATION, DEVICE, address, state, "digits", profile)
    request = DiagnosticRequest(federation=FEDERATION, device=DEVICE, request="0" * 16, what=Diagnostic.LOGS)
    return Collector(settings).collect(request)


def test_what_a_reader_itself_raises_is_not_quoted_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(SECRET)

    path = tmp_path / "log.csv"
    path.write_text("x,y\n1,2\n3,4\n5,6\n7,8\n9,1\n")
    source = LocalSource(DataChoice(f"csv:{path}?label=y"))
    source.read()
    monkeypatch.setattr(local_source, "load_source", broken)
    path.write_text("x,y\n1,2\n")
    assert source.reload_if_changed() is None
    assert "cannot be used, the earlier data is kept" in caplog.text
    assert f"RuntimeError in {__file__} line" in caplog.text
    assert SECRET not in caplog.text
    with pytest.raises(ConfigError) as raised:
        source.read()
    assert SECRET in in_full(raised.value)
    logging.getLogger(__name__).error("it failed", exc_info=raised.value)
    record_of_crash = stack_of(raised.value)
    assert "RuntimeError in" in record_of_crash
    assert SECRET not in record_of_crash + JsonFormat().format(caplog.records[-1])


def test_a_text_is_no_name_of_a_class() -> None:
    why = misfit(("good", SECRET * 9), ("good", "worn"), named=True)
    assert why.startswith("unknown class one of 198 characters: the federation knows")
    assert SECRET not in why


def test_the_users_own_terminal_quotes_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"age,tall\n4,1\n{SECRET},2\n7,3\n")
    with pytest.raises(ConfigError) as raised:
        LocalSource(DataChoice(f"csv:{path}?columns=age&broken=0&time=tall&missing=refuse")).read()
    assert SECRET not in str(raised.value)
    bare = ConfigError("column 'age' is not a number", quoted=repr(SECRET))
    wrapped = ConfigError(f"two files are broken: {bare}")
    wrapped.__cause__ = bare
    assert in_full(wrapped) == f"two files are broken: column 'age' is not a number (found: '{SECRET}')"
    EDGE_CLIENT.report_error(wrapped, 2)
    assert capsys.readouterr().err == f"edge-client: {in_full(wrapped)}\n"
