"""A file of another kind than stated is refused with the source that reads it, or with what to do."""

import sqlite3
import wave
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import SOURCES, load_source
from edge_client.data.tables.kinds import TABLES
from schemas.errors import ConfigError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")
scipy_io = pytest.importorskip("scipy.io")
h5py = pytest.importorskip("h5py")

TABLE = pyarrow.table({"a": [1.0, 2.0]})


def write_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE rows (a)")
        database.commit()


def write_wav(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(16))


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("xl/workbook.xml", "<workbook/>")


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a"] = np.zeros(3)


WRITERS: dict[str, tuple[str, Callable[[Path], object], frozenset[str], str]] = {
    "csv": (
        "csv",
        lambda path: path.write_text("a,b\n1,2\n"),
        frozenset({"csv", "influxdb"}),
        "csv:PATH or influxdb",
    ),
    "parquet": (
        "parquet",
        lambda path: parquet.write_table(TABLE, path),
        frozenset({"parquet"}),
        "parquet:PATH",
    ),
    "feather": (
        "feather",
        lambda path: feather.write_feather(TABLE, str(path)),
        frozenset({"arrow", "feather"}),
        "arrow:PATH or feather:PATH",
    ),
    "sqlite": ("db", write_sqlite, frozenset({"sqlite", "homeassistant", "recorded"}), "sqlite:PATH"),
    "mat": ("mat", lambda path: scipy_io.savemat(path, {"a": np.zeros(3)}), frozenset({"mat"}), "mat:PATH"),
    "influxdb": (
        "csv",
        lambda path: path.write_text("#datatype,string\n,a\n,b\n"),
        frozenset({"influxdb"}),
        "influxdb:PATH",
    ),
    "json": (
        "json",
        lambda path: path.write_text('{"a": 1}\n'),
        frozenset({"jsonl", "senml", "edgeimpulse", "coco"}),
        "jsonl:PATH or senml:PATH or edgeimpulse:PATH or coco:PATH",
    ),
    "npz": ("npz", lambda path: np.savez(path, a=np.zeros(3)), frozenset({"npz"}), "npz:PATH"),
    "npy": ("npy", lambda path: np.save(path, np.zeros(3)), frozenset(), "numpy.savez"),
    "wav": ("wav", write_wav, frozenset({"wav"}), "wav:FOLDER"),
    "hdf5": ("h5", write_hdf5, frozenset({"mat"}), "python:module:function"),
    "xlsx": ("xlsx", write_zip, frozenset(), "save its sheet as CSV"),
    "tfrecord": (
        "tfrecord",
        lambda path: path.write_bytes(b"\x10" + bytes(40)),
        frozenset(),
        "python:module",
    ),
    "avro": ("avro", lambda path: path.write_bytes(b"Obj\x01\x04"), frozenset(), "JSON lines"),
    "pcap": (
        "pcap",
        lambda path: path.write_bytes(b"\xd4\xc3\xb2\xa1\x02"),
        frozenset(),
        "tshark.*python:module",
    ),
    "pcapng": (
        "pcapng",
        lambda path: path.write_bytes(b"\n\r\r\n\x1c"),
        frozenset(),
        "python:module:function",
    ),
}
ONLY_ENDING = ("npz", "xlsx", "tfrecord")


@pytest.mark.parametrize("ending", [True, False], ids=["its ending", "no ending"])
@pytest.mark.parametrize("content", WRITERS)
def test_a_file_of_another_kind_names_the_source_that_reads_it(
    tmp_path: Path, content: str, ending: bool
) -> None:
    suffix, write, readers, remedy = WRITERS[content]
    write(tmp_path / f"room.{suffix}")
    path = tmp_path / f"room.{suffix}"
    if not ending and content not in ONLY_ENDING:
        path = path.rename(tmp_path / "room")
    for kind in sorted({name for name, source in SOURCES.items() if source.of_files} - readers):
        with pytest.raises(ConfigError, match=rf"room.* is .*, which {kind}: does not read: .*{remedy}"):
            load_source(f"{kind}:{path}")


def test_a_missing_file_is_said_to_be_missing_by_every_table(tmp_path: Path) -> None:
    for kind in TABLES:
        with pytest.raises(ConfigError, match=r"cannot read .*nowhere|no recordings at .*nowhere"):
            load_source(f"{kind}:{tmp_path / 'nowhere'}?{'entities=a' if kind == 'homeassistant' else ''}")


def test_an_unknown_kind_of_source_names_the_function(tmp_path: Path) -> None:
    assert "xlsx" not in SOURCES
    with pytest.raises(ConfigError, match=r"unknown data source 'xlsx:a.xlsx'.*python:module:function"):
        load_source("xlsx:a.xlsx")
