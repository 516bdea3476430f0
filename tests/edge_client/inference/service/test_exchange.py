"""The model is replaced during operation; a model that cannot be served changes nothing."""

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.inference.model_slots import ServedModel, Slots
from edge_client.inference.service import predictor as module
from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import FileSource, SlotSource
from edge_client.inference.service.predictor import Busy, NotReady, Predictor
from schemas.tensors.chunks import digest_of
from tests.edge_client.inference.test_onnx_model import write_model
from tests.edge_client.signed import STRANGER, TRUSTED, sign_file

PIXELS = b'{"pixels": [[9, 0, 0]]}'


def named(path: Path, *names: str) -> Path:
    """A model named after its first class, which is the most probable one for `PIXELS`."""
    classes = '", "'.join(names)
    metadata = {
        "input.shape": "[1, 1, 3]",
        "preprocessing": '{"scale": 1.0}',
        "class_names": f'["{classes}"]',
        "fl.run_id": names[0],
        "fl.round": "2",
    }
    return write_model(path, metadata=metadata)


def predictor_of(path: Path, **more: Any) -> Predictor:
    predictor = Predictor(FileSource(path, **more), RequestMetrics())
    predictor.refresh()
    return predictor


def best(predictor: Predictor) -> str:
    answer = predictor.answer(PIXELS)
    return str(answer["results"][0]["top"][0]["name"])


def replace(path: Path, data: bytes) -> None:
    (path.parent / "aside").write_bytes(data)
    (path.parent / "aside").replace(path)


def test_a_replaced_file_is_served_after_the_next_refresh(tmp_path: Path) -> None:
    path = named(tmp_path / "model.onnx", "ant")
    predictor = predictor_of(path)
    assert (best(predictor), predictor.model["version"]) == ("ant", "ant round 2")
    assert not predictor.refresh()
    replace(path, named(tmp_path / "next.onnx", "bee").read_bytes())
    assert best(predictor) == "ant"
    assert predictor.refresh()
    assert (best(predictor), predictor.model["version"]) == ("bee", "bee round 2")
    assert predictor.model["digest"] == digest_of(path.read_bytes())


@pytest.mark.parametrize("damage", [b"", b"no model at all", None])
def test_a_damaged_file_changes_nothing_and_is_logged_in_one_line(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = named(tmp_path / "model.onnx", "ant")
    whole = path.read_bytes()
    predictor = predictor_of(path)
    replace(path, whole[:-40] if damage is None else damage)
    assert predictor.refresh()
    assert best(predictor) == "ant"
    assert "is not an ONNX model" in predictor.trouble
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage().startswith("still serving ant round 2: ")
    assert "\n" not in record.getMessage()
    # The damaged file is reported once, and the next valid model is served.
    assert not predictor.refresh()
    replace(path, named(tmp_path / "next.onnx", "bee").read_bytes())
    predictor.refresh()
    assert (best(predictor), predictor.trouble) == ("bee", "")


def test_a_deleted_file_changes_nothing(tmp_path: Path) -> None:
    path = named(tmp_path / "model.onnx", "ant")
    predictor = predictor_of(path)
    path.unlink()
    assert predictor.refresh()
    assert best(predictor) == "ant"


def test_a_model_that_loads_but_cannot_run_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = named(tmp_path / "model.onnx", "ant")
    predictor = predictor_of(path)
    replace(path, named(tmp_path / "next.onnx", "bee").read_bytes())

    def fail(*_: object, **more: object) -> None:
        raise RuntimeError("out of everything\nand a second line")

    with monkeypatch.context() as patched:
        patched.setattr("edge_client.inference.onnx_model.LoadedModel.run", fail)
        predictor.refresh()
    assert "cannot be run: out of everything" in predictor.trouble
    assert best(predictor) == "ant"


def test_models_without_a_trusted_signature_are_not_served(tmp_path: Path) -> None:
    path = named(tmp_path / "model.onnx", "ant")
    sign_file(path)
    predictor = predictor_of(path, trust=TRUSTED)
    assert best(predictor) == "ant"
    replace(path, named(tmp_path / "next.onnx", "bee").read_bytes())
    predictor.refresh()
    assert "is not trusted" in predictor.trouble
    sign_file(path, STRANGER)
    predictor.refresh()
    assert "is not trusted: signed with key" in predictor.trouble
    assert best(predictor) == "ant"
    # The manifest alone changes, and the model is served.
    sign_file(path)
    predictor.refresh()
    assert best(predictor) == "bee"


def test_a_request_is_answered_by_the_model_that_it_started_with(tmp_path: Path) -> None:
    """A request runs in the old model while the next one replaces it."""
    path = named(tmp_path / "model.onnx", "ant")
    predictor = predictor_of(path)
    old = predictor.served
    inside, go_on = threading.Event(), threading.Event()
    run = old.loaded.session.run

    class Slow:
        def run(self, *arguments: Any) -> Any:
            inside.set()
            assert go_on.wait(60)
            return run(*arguments)

        def get_inputs(self) -> Any:
            return session.get_inputs()

    session = old.loaded.session
    object.__setattr__(old.loaded, "session", Slow())
    answers: list[str] = []
    waiting = threading.Thread(target=lambda: answers.append(best(predictor)))
    waiting.start()
    assert inside.wait(60)
    replace(path, named(tmp_path / "next.onnx", "bee").read_bytes())
    predictor.refresh()
    assert best(predictor) == "bee"
    go_on.set()
    waiting.join(60)
    assert answers == ["ant"]


def test_no_request_fails_while_models_are_exchanged(tmp_path: Path) -> None:
    path = named(tmp_path / "model.onnx", "ant")
    kinds = [named(tmp_path / f"{name}.onnx", name).read_bytes() for name in ("ant", "bee", "cat")]
    predictor = predictor_of(path)
    stop, seen, failed = threading.Event(), set(), []

    def ask() -> None:
        while not stop.is_set():
            try:
                answer = predictor.answer(PIXELS)
                # An answer comes from one model: its name and its class agree.
                name = answer["results"][0]["top"][0]["name"]
                assert answer["model"]["version"] == f"{name} round 2"
                seen.add(name)
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(6):
        replace(path, kinds[number % 3])
        predictor.refresh()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert seen


def test_slots_serve_after_a_switch_and_can_be_rolled_back(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "serving")
    predictor = Predictor(SlotSource(slots), RequestMetrics())
    predictor.refresh()
    with pytest.raises(NotReady, match=r"no model in .*serving yet"):
        predictor.answer(PIXELS)
    for name in ("ant", "bee"):
        data = named(tmp_path / "made.onnx", name).read_bytes()
        slots.fill(data, ServedModel(version=name, digest=digest_of(data), variant="int8"))
        predictor.refresh()
        assert predictor.model is None or predictor.model["version"] != name
        slots.switch(digest_of(data))
        predictor.refresh()
        assert (best(predictor), predictor.model["variant"]) == (name, "int8")
    slots.back()
    predictor.refresh()
    assert best(predictor) == "ant"


def test_filling_the_other_slot_triggers_no_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(tmp_path / "serving")
    old = named(tmp_path / "old.onnx", "ant").read_bytes()
    slots.fill(old, ServedModel(version="1", digest=digest_of(old)))
    slots.switch(digest_of(old))
    source = SlotSource(slots)
    before = source.stamp()
    new = named(tmp_path / "new.onnx", "bee").read_bytes()
    slots.fill(new, ServedModel(version="2", digest=digest_of(new)))
    assert source.stamp() == before
    slots.switch(digest_of(new))
    assert source.stamp() != before


def test_too_many_requests_are_refused_as_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    predictor = predictor_of(named(tmp_path / "model.onnx", "ant"))
    for _ in range(module.AT_ONCE):
        predictor.turns.acquire()
    with pytest.raises(Busy, match="try again"):
        predictor.answer(PIXELS)
    predictor.turns.release()
    assert best(predictor) == "ant"


def test_metrics_are_rendered_for_prometheus(tmp_path: Path) -> None:
    tally = RequestMetrics()
    for outcome in ("ok", "ok", "bad"):
        tally.request("http", outcome)
    # 4 ms, 4 ms and 3 s: two below 5 ms, all below infinity.
    for seconds in (0.004, 0.004, 3.0):
        tally.count_prediction(2, seconds)
    tally.reload("failed")
    lines = tally.text({"version": 'a "b"\\\n', "digest": "d", "variant": "int8"}).splitlines()
    for line in (
        "edge_serve_ready 1",
        r'edge_serve_model_info{version="a \"b\"\\\n",digest="d",variant="int8"} 1',
        'edge_serve_requests_total{door="http",outcome="bad"} 1',
        'edge_serve_requests_total{door="http",outcome="ok"} 2',
        "edge_serve_images_total 6",
        'edge_serve_reloads_total{outcome="failed"} 1',
        'edge_serve_predict_seconds_bucket{le="0.0025"} 0',
        'edge_serve_predict_seconds_bucket{le="0.005"} 2',
        'edge_serve_predict_seconds_bucket{le="2.5"} 2',
        'edge_serve_predict_seconds_bucket{le="+Inf"} 3',
        "edge_serve_predict_seconds_sum 3.008000",
        "edge_serve_predict_seconds_count 3",
    ):
        assert line in lines
    assert "edge_serve_ready 0" in tally.text(None)
    assert all(line.startswith(("#", "edge_serve_", "process_")) for line in lines)


def test_an_image_that_cannot_be_read_leaves_the_service_up(tmp_path: Path) -> None:
    predictor = predictor_of(named(tmp_path / "model.onnx", "ant"))
    with pytest.raises(module.ConfigError, match="it is not an image"):
        predictor.answer(np.zeros(9, np.uint8).tobytes())
    assert best(predictor) == "ant"
