"""Recordings for a model: the same samples in training, `infer` and a service; an answer for each piece."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.inference.queries import read_input
from edge_client.inference.service.requests import MAX_IMAGES, read_request
from schemas.errors import ConfigError
from tests.edge_client.data.sounds.sound_bytes import pcm, tone, wav_bytes
from tests.edge_client.data.sounds.test_sound_files import KINDS
from tests.edge_client.inference.test_onnx_model import write_model

RATE, LENGTH = 8000, 800
SECONDS = LENGTH / RATE


def make_model(folder: Path, shape: tuple[int, ...]) -> LoadedModel:
    metadata = {
        "input.shape": json.dumps(shape),
        "preprocessing": json.dumps({"scale": 1.0, "rate": RATE}),
        "class_names": '["cat", "dog"]',
    }
    return load_model(write_model(folder / "model.onnx", shape=shape, metadata=metadata), threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model of a tenth of a second at 8 kHz."""
    return make_model(tmp_path_factory.mktemp("model"), (1, LENGTH))


def write_any(path: Path, samples: np.ndarray, rate: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind, coding = KINDS.get(path.suffix[1:], ("", ""))
    if path.name == "plain.wav":
        path.write_bytes(wav_bytes(pcm(samples, 24), bits=24, rate=rate, inner=1))
    else:
        soundfile.write(path, samples, rate, format=kind, subtype=coding)
    return path


READERS: dict[str, Callable[[Path, LoadedModel], np.ndarray]] = {
    "infer": lambda path, model: read_input(path, model).images,
    "infer of a folder": lambda path, model: read_input(path.parents[1], model).images,
    "infer of the source": lambda path, model: read_input(Path(f"wav:{path.parents[1]}"), model).images,
    "a service": lambda path, model: read_request(path.read_bytes(), model).images,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", ["plain.wav", *(f"a.{ending}" for ending in KINDS)])
def test_samples_are_those_of_training(name: str, reader, model: LoadedModel, tmp_path: Path) -> None:
    path = write_any(tmp_path / "cat" / name, tone(300, 0.36, 48_000), 48_000)
    trained = load_source(f"wav:{tmp_path}?rate={RATE}&seconds={SECONDS}").images
    # 0.3 s in three pieces; 0.06 s are more than half of one.
    assert len(trained) == (4 if name not in ("a.mp3", "a.wav") else len(trained))
    np.testing.assert_array_equal(reader(path, model), trained)


def test_each_piece_of_a_recording_has_a_name_and_the_label_of_its_folder(
    model: LoadedModel, tmp_path: Path
) -> None:
    first = write_any(tmp_path / "dog" / "a.flac", tone(300, 0.2), RATE)
    second = write_any(tmp_path / "cat" / "ann" / "plain.wav", tone(300, 0.1), RATE)
    (tmp_path / "dog" / "._a.flac").write_bytes(b"\0\5\x16\7")
    named = read_input(tmp_path, model)
    assert named.names == (f"{second}[0]", f"{first}[0]", f"{first}[1]")
    assert named.labels is not None
    assert named.labels.tolist() == [0, 1, 1]
    assert read_input(first, model).labels is None


def test_a_broken_recording_of_a_folder_is_left_out(model: LoadedModel, tmp_path: Path) -> None:
    whole = write_any(tmp_path / "cat" / "plain.wav", tone(300, 0.2), RATE)
    (tmp_path / "cat" / "a.wav").write_bytes(wav_bytes(b""))
    named = read_input(tmp_path, model)
    assert (named.names, named.labels is None) == ((f"{whole}[0]", f"{whole}[1]"), False)
    with pytest.raises(ConfigError, match=r"a\.wav has no samples"):
        read_input(tmp_path / "cat" / "a.wav", model)


def test_a_folder_without_recordings_and_another_rate_are_refused(model: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are no recordings in"):
        read_input(tmp_path, model)
    write_any(tmp_path / "cat" / "plain.wav", tone(300, 0.1), RATE)
    with pytest.raises(ConfigError, match=r"model\.onnx takes recordings of 8000 Hz"):
        read_input(Path(f"wav:{tmp_path}?rate=4000&seconds=0.2"), model)


def test_a_body_of_more_pieces_than_a_request_may_have_is_refused(model: LoadedModel) -> None:
    body = wav_bytes(pcm(np.zeros(LENGTH * MAX_IMAGES), 16))
    assert len(read_request(body, model).images) == MAX_IMAGES
    body = wav_bytes(pcm(np.zeros(2 * LENGTH * MAX_IMAGES), 16))
    with pytest.raises(ConfigError, match=r"has more than 256 examples of 0\.1 s: send it in parts"):
        read_request(body, model)


@pytest.mark.parametrize("ending", KINDS)
def test_a_recording_is_refused_by_a_model_for_pictures(ending: str, tmp_path: Path) -> None:
    pictures = make_model(tmp_path, (1, 8, 8))
    path = write_any(tmp_path / f"a.{ending}", tone(300, 0.2), RATE)
    for read in (lambda: read_input(path, pictures), lambda: read_request(path.read_bytes(), pictures)):
        with pytest.raises(ConfigError, match=r"this is a recording, and .* takes 1x8x8"):
            read()
