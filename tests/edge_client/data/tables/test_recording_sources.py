"""Folders of recordings with several signals: Edge Impulse's files and exports, and MATLAB files."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.data.sources import files_of, load_source
from schemas.errors import ConfigError
from tests.edge_client.data.tables.column_names import column_names

cbor2 = pytest.importorskip("cbor2")
h5py = pytest.importorskip("h5py")
scipy_io = pytest.importorskip("scipy.io")

GENERATOR = np.random.default_rng(1)
AXES = ("accX", "accY", "accZ")


def acquisition(values: Any, *, axes: tuple[str, ...] = AXES, step: float = 16, unit: str = "m/s2") -> Any:
    """A file of the data acquisition format, as its firmware sends it."""
    payload = {
        "device_name": "ac:87:a3:0a:2d:1b",
        "device_type": "DISCO-L475VG-IOT01A",
        "interval_ms": step,
        "sensors": [{"name": name, "units": unit} for name in axes],
        "values": values,
    }
    return {
        "protected": {"ver": "v1", "alg": "none", "iat": 1_564_128_599},
        "signature": "0",
        "payload": payload,
    }


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cbor2.dumps(value) if path.suffix == ".cbor" else json.dumps(value).encode())


MOTIONS = {name: GENERATOR.normal(size=(7, 3)).round(3) for name in ("idle.1a", "wave.2b", "idle.3c")}


@pytest.fixture(params=["json", "cbor"])
def export(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An export: two files for training, one for testing."""
    for name, values in MOTIONS.items():
        part = "testing" if name == "idle.3c" else "training"
        write(tmp_path / part / f"{name}.{request.param}", acquisition(values.tolist()))
    return tmp_path


def test_windows_stay_inside_a_file_and_parts_are_those_of_the_export(export: Path) -> None:
    """Seven rows have windows of 3 from 0, 2 and 4 on; labels are the names up to the first point."""
    source = f"edgeimpulse:{export}?label=label&window=3&stride=2"
    train, test = load_source(source), load_source(source, split="test")
    expected = [MOTIONS[name][start : start + 3].T for name in ("idle.1a", "wave.2b") for start in (0, 2, 4)]
    np.testing.assert_array_equal(train.images, np.float32(expected))
    assert [train.class_names[label] for label in train.labels] == ["idle"] * 3 + ["wave"] * 3
    assert (column_names(train), len(test)) == (AXES, 3)
    assert files_of(source) == (export,)


@pytest.mark.parametrize("place", ["", "training"])
def test_labels_of_an_export_are_those_of_its_list(export: Path, place: str) -> None:
    paths = sorted((export / "training").iterdir())
    labels = [{"type": "label", "label": "0.01 shake"}, {"type": "unlabeled"}]
    entries = [
        {"path": str(path.relative_to(export / place)), "category": "training", "label": label}
        for path, label in zip(paths, labels, strict=True)
    ]
    (export / place / "info.labels").write_text(json.dumps({"version": 1, "files": entries}))
    data = load_source(f"edgeimpulse:{export}?label=label&window=7&missing=drop")
    assert (len(data), data.class_names) == (1, ("0.01 shake",))
    alone = load_source(f"edgeimpulse:{export / 'training'}?label=label&window=7&missing=drop")
    assert alone.class_names == ("0.01 shake",)
    entries[0]["label"] = {"type": "multi-label", "labels": []}
    (export / place / "info.labels").write_text(json.dumps({"version": 1, "files": entries}))
    with pytest.raises(ConfigError, match=r"has several labels.*python:module:function"):
        load_source(f"edgeimpulse:{export}?label=label")


def test_one_file_and_one_sensor_are_enough(tmp_path: Path) -> None:
    write(tmp_path / "hum.json", acquisition([1, 2, 3], axes=("level",)))
    assert load_source(f"edgeimpulse:{tmp_path / 'hum.json'}").images.tolist() == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (acquisition([[1, 2, 3]], step=10), "every 10 ms.*every 16 ms.*convert one"),
        (acquisition([[1, 2, 3]], unit="g"), "accX in g.*accX in m/s2.*convert one"),
    ],
)
def test_files_of_other_steps_or_units_are_refused(export: Path, other: Any, message: str) -> None:
    write(export / "training/wave.9.json", other)
    with pytest.raises(ConfigError, match=rf"wave.9.json has readings .*{message}"):
        load_source(f"edgeimpulse:{export}?label=label")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (acquisition(["Ref-BINARY-i16 (16000 bytes) 1a"], axes=("audio",)), "refers to pictures or sounds"),
        (acquisition([[1, 2]]), "values of the shape .1, 2. for 3 sensors"),
        (acquisition([[1, 2, 3], [4]]), "are not rows of numbers"),
        ({"payload": {"values": []}}, "is not a file of Edge Impulse: its payload lacks sensors"),
        ([1], "is not a file of Edge Impulse"),
    ],
)
def test_a_broken_file_is_skipped_and_alone_it_is_refused(
    export: Path, tmp_path: Path, broken: Any, message: str
) -> None:
    write(export / "training/zoom.9.json", broken)
    data = load_source(f"edgeimpulse:{export}?label=label")
    assert (len(data), data.skipped and data.skipped.files) == (14, 1)
    with pytest.raises(ConfigError, match=message):
        load_source(f"edgeimpulse:{export / 'training/zoom.9.json'}")


DRIVE, FAN = GENERATOR.normal(size=(2, 40))


def write_matlab_7_3(path: Path, values: dict[str, Any]) -> None:
    """As MATLAB saves it: HDF5 behind 512 bytes of header, axes in the opposite order."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in values.items():
            file.create_dataset(name, data=np.atleast_2d(value).T).attrs["MATLAB_class"] = np.bytes_("double")
        file.create_dataset("title", data=np.frombuffer(b"a\0b\0", np.uint16)).attrs["MATLAB_class"] = (
            np.bytes_("char")
        )
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


@pytest.fixture(params=["5", "4", "7.3"])
def bearings(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two classes, a file each, with two signals; one file has the speed, too."""
    for number, name, scale in ((97, "normal", 1), (105, "inner", 2)):
        (tmp_path / name).mkdir()
        path = tmp_path / name / f"{number}.mat"
        values = {
            f"X{number:03}_DE_time": scale * DRIVE[:, None],
            f"X{number:03}_FE_time": scale * FAN[:, None],
            **({f"X{number:03}RPM": np.array([[1796.0]])} if number == 97 else {}),
        }
        if request.param == "7.3":
            write_matlab_7_3(path, values)
        else:
            scipy_io.savemat(path, values, format=request.param, do_compression=request.param == "5")
    return tmp_path


def test_signals_of_bearings_are_columns_and_sub_folders_classes(bearings: Path) -> None:
    data = load_source(f"mat:{bearings}?label=label&window=8&stride=8")
    both = np.stack([DRIVE, FAN]).reshape(2, 5, 8).swapaxes(0, 1)
    np.testing.assert_array_equal(data.images, np.concatenate([2 * both, both]).astype(np.float32))
    assert [data.class_names[label] for label in data.labels] == ["inner"] * 5 + ["normal"] * 5
    assert column_names(data) == ("DE_time", "FE_time")
    one = load_source(f"mat:{bearings / 'normal/97.mat'}?window=8&stride=8")
    assert column_names(one) == ("RPM", "DE_time", "FE_time")
    assert (one.images[:, 0] == 1796).all()


def test_matrices_and_structures_have_a_column_for_each_signal(tmp_path: Path) -> None:
    """The channels of a matrix, the fields of a structure; what has another length or no numbers is not."""
    matrix = GENERATOR.normal(size=(30, 2))
    values = {
        "data": matrix,
        "bearing": {"gs": matrix[:, 0] * 2, "rate": 25, "note": "x"},
        "axis": np.arange(9),
    }
    scipy_io.savemat(tmp_path / "a.mat", values)
    data = load_source(f"mat:{tmp_path / 'a.mat'}")
    assert column_names(data) == ("bearing.gs", "bearing.rate", "data.0", "data.1")
    expected = np.column_stack([matrix[:, 0] * 2, np.full(30, 25), matrix])
    np.testing.assert_array_equal(data.images, expected.astype(np.float32))
    write_matlab_7_3(tmp_path / "b.mat", {"data": matrix})
    np.testing.assert_array_equal(load_source(f"mat:{tmp_path / 'b.mat'}").images, matrix.astype(np.float32))


def test_broken_matlab_files_are_refused(tmp_path: Path) -> None:
    scipy_io.savemat(tmp_path / "a.mat", {"x": DRIVE, "y": "text"})
    whole = (tmp_path / "a.mat").read_bytes()
    for length in (0, 100, 140, 200, len(whole) - 100):
        (tmp_path / "b.mat").write_bytes(whole[:length])
        with pytest.raises(ConfigError, match=r"b.mat (is not a MATLAB file|has no arrays)"):
            load_source(f"mat:{tmp_path / 'b.mat'}")
    scipy_io.savemat(tmp_path / "c.mat", {"X098_DE_time": DRIVE, "X099_DE_time": DRIVE})
    with pytest.raises(ConfigError, match="two signals 'DE_time', the second in X099_DE_time"):
        load_source(f"mat:{tmp_path / 'c.mat'}")
    with pytest.raises(ConfigError, match=r"no recordings at .*expected .mat"):
        load_source(f"mat:{tmp_path / 'nowhere'}")


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("cbor2", "idle.1.cbor", "cbor"), ("scipy.io", "a.mat", "mat"), ("h5py", "b.mat", "mat")],
)
def test_without_its_reader_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, extra: str
) -> None:
    write(tmp_path / "idle.1.cbor", acquisition([[1, 2, 3]]))
    scipy_io.savemat(tmp_path / "a.mat", {"x": DRIVE})
    write_matlab_7_3(tmp_path / "b.mat", {"x": DRIVE})
    monkeypatch.setitem(sys.modules, module, None)
    kind = "mat" if extra == "mat" else "edgeimpulse"
    with pytest.raises(ConfigError, match=rf"needs {module}.*pip install 'edge-federation\[{extra}\]'"):
        load_source(f"{kind}:{tmp_path / name}")


def test_labels_of_files_without_one_are_refused(tmp_path: Path) -> None:
    scipy_io.savemat(tmp_path / "a.mat", {"x": DRIVE})
    for path in (tmp_path, tmp_path / "a.mat"):
        with pytest.raises(ConfigError, match="make a sub-folder for each class"):
            load_source(f"mat:{path}?label=label")
    write(tmp_path / "a.json", acquisition([[1, 2, 3]]))
    labels = {"version": 1, "files": [{"path": "a.json", "label": {"type": "unlabeled"}}]}
    (tmp_path / "info.labels").write_text(json.dumps(labels))
    with pytest.raises(ConfigError, match=r"a.json: column 'label' has no value"):
        load_source(f"edgeimpulse:{tmp_path}?label=label")
