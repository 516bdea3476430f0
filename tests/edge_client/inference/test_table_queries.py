"""`infer` reads each kind of table as a device does, and names the source of a file that is not a picture."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edge_client.cli.main import main
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference.queries import read_input
from edge_server.rounds.agreed_lists import ClassList, class_objection
from schemas.errors import ConfigError, PeerError
from schemas.values import DataCard, ModelSpec, Preprocessing
from tests.edge_client.agent.session.by_hand import task
from tests.edge_client.inference.test_onnx_model import write_model

SERIES = [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]
PAYLOAD = {"interval_ms": 10, "sensors": [{"name": "x", "units": "g"}], "values": SERIES[0]}
FLUX = """\
#group,false,false,false,true
#datatype,string,long,dateTime:RFC3339,string
#default,_result,,,
,result,table,_time,_value,_field
,,0,2026-11-28T00:00:00Z,1.5,x
,,0,2026-11-28T00:01:00Z,2.5,x
"""
TEXTS = {
    "jsonl:a.jsonl": "".join(json.dumps({"x": series}) + "\n" for series in SERIES),
    "jsonl:b.jsonl?window=2": '{"x": 1}\n{"x": 2}\n{"x": 4}\n',
    "senml:a.json?window=2&every=10": json.dumps([{"n": "x", "t": 1.7e9 + 10 * t, "v": t} for t in range(4)]),
    "influxdb:a.csv": FLUX,
    "edgeimpulse:a.json?window=3": json.dumps({"payload": PAYLOAD}),
}


def model_of(shape: tuple[int, ...]) -> Any:
    return SimpleNamespace(
        input_shape=shape, fit=lambda data: data, preprocessing=Preprocessing(scale=1.0), task=None
    )


@pytest.mark.parametrize("source", TEXTS)
def test_examples_are_those_that_a_device_trains_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(source.partition(":")[2].partition("?")[0]).write_text(TEXTS[source])
    data = load_source(source)
    found = read_input(Path(source), model_of(data.input_shape))
    np.testing.assert_array_equal(found.images, data.images)
    assert (len(found.names), found.labels) == (len(data), None)


def test_a_file_that_is_no_picture_names_its_source(tmp_path: Path) -> None:
    (tmp_path / "room.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match=r"room.csv is text: name it csv:PATH or influxdb:PATH"):
        read_input(tmp_path / "room.csv", model_of((2,)))
    with pytest.raises(ConfigError, match=r"room.csv is text, which jsonl: does not read"):
        read_input(Path(f"jsonl:{tmp_path / 'room.csv'}"), model_of((2,)))


def test_a_half_written_line_is_left_out_and_the_user_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("x,y\n1,2\n3,4\n5,")
    found = read_input(Path(f"csv:{path}"), model_of((2,)))
    assert found.images.tolist() == [[1, 2], [3, 4]]
    assert found.notes == (
        f"csv:{path}: what is half written is left out, such as a last line without a line end",
    )


def test_a_forecast_model_names_the_options_of_what_it_has_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, names = tmp_path / "room.csv", ("co2+1 change",)
    path.write_text("co2\n" + "".join(f"{number}.5\n" for number in range(9)))
    about = {"preprocessing": '{"scale": 1.0}', "class_names": json.dumps(names), "task": "regression"}
    model = write_model(tmp_path / "model.onnx", shape=(1, 1), metadata=about)
    source = f"csv:{path}?label=co2&columns=co2&window=1&horizon=1"
    assert main(["infer", str(model), f"{source}&change=yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("on 8 labelled examples")
    assert main(["infer", str(model), source]) == 2
    wanted = "the model gives 'co2+1 change' (1), and this data has 'co2+1' (1): state label=, horizon= and"
    assert wanted in capsys.readouterr().err
    # So say device and server.
    data = load_source(source)
    spec = ModelSpec(name="mlp", input_shape=(1, 1), num_classes=1, task="regression")
    with pytest.raises(PeerError) as refused:
        LocalData(data, data).check(task(model=spec, preprocessing=Preprocessing(class_names=names)))
    card = DataCard(source="", examples=8, input_shape=(1, 1), num_classes=1, class_names=data.class_names)
    said = class_objection(card, ClassList(1, names, measured=True))
    assert all(wanted in text for text in (str(refused.value), said))


def test_a_classifier_of_rows_counts_examples_and_no_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("a,b,c,y\n1,2,3,bee\n3,2,1,cat\n")
    model = write_model(tmp_path / "model.onnx", shape=(3,))
    assert main(["infer", str(model), f"csv:{tmp_path / 't.csv'}?label=y"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "accuracy 0.00% on 2 labelled examples"
    np.save(tmp_path / "a.npy", np.zeros((2, 4)))
    assert main(["infer", str(model), str(tmp_path / "a.npy")]) == 2
    assert "model.onnx takes examples of 3, got 4" in capsys.readouterr().err
