"""Spectra as a part of the network: against a direct Fourier transform, exported, served from raw files."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from edge_client.cli.main import main
from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_client.inference.quantization.quantize import quantise_model
from edge_client.inference.service.requests import read_request
from edge_client.models.speech_cnn import FLOOR, LEAST_DEVIATION, WINDOW, LogMel
from edge_server.config.load import load_config
from edge_server.simulation.experiments.spoken_digits import mel_filters
from edge_server.simulation.simulator import simulate
from schemas.errors import ConfigError
from tests.edge_client.data.sounds.sound_bytes import tone, write_wav
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.small import Quiet
from tests.once import made_once

LENGTH = 4096
SECONDS = 0.256


def direct(samples: np.ndarray, hop: int) -> np.ndarray:
    """The spectra by numpy's Fourier transform, with the filters of another implementation."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::hop]
    energies = np.abs(np.fft.rfft(frames * np.hanning(WINDOW))) ** 2
    logs = np.log(energies @ mel_filters(32, WINDOW, 8000).T + FLOOR).T
    return (logs - logs.mean()) / max(logs.std() + FLOOR, LEAST_DEVIATION)


def test_spectra_are_those_of_a_direct_fourier_transform() -> None:
    samples = np.random.default_rng(0).standard_normal(LENGTH).astype(np.float32)
    spectra = LogMel(LENGTH)
    found = spectra(torch.from_numpy(samples)[None, None]).numpy()[0, 0]
    np.testing.assert_allclose(found, direct(samples.astype(np.float64), spectra.hop), atol=1e-4)


def test_spectra_do_not_depend_on_loudness_and_are_finite_for_silence() -> None:
    spectra = LogMel(LENGTH)
    noise = torch.randn(1, 1, LENGTH, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(spectra(noise), spectra(0.5 * noise), atol=1e-3, rtol=0)
    assert torch.isfinite(spectra(torch.zeros(1, 1, LENGTH))).all()


def test_a_network_travels_without_its_constants() -> None:
    assert not dict(LogMel(LENGTH).state_dict())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulation with recordings of three tones, by devices with and without torch."""
    return made_once(tmp_path_factory, "tones", simulate_tones)


def simulate_tones(root: Path) -> None:
    """Write the recordings and the run."""
    random = np.random.default_rng(0)
    folder = root / "tones"
    folder.mkdir()
    for label, hertz in (("high", 2000), ("low", 300), ("mid", 900)):
        for index in range(30):
            sound = tone(hertz * random.uniform(0.95, 1.05), 0.22)
            write_wav(folder / f"{label}_{index}.wav", sound + 0.05 * random.standard_normal(len(sound)))
    settings = {
        "model.name": "speech-cnn",
        "data.source": f"wav:{folder}?name={{label}}_{{index}}&test=index<6&seconds={SECONDS}",
        "num-clients": 2,
        "tiers.ratios": [0.5, 0.0],
        "rounds": 5,
        "local-epochs": 2,
        "federation.evaluate-every": 5,
        "batch-size": 8,
        "learning-rate": 0.05,
        "simulation.trainer": ["torch", "onnx"],
        "workers": 1,
    }
    words = [
        f"{key}={json.dumps(value) if isinstance(value, list) else value}" for key, value in settings.items()
    ]
    with in_process():
        simulate(load_config("attending", words), out=root / "run", watcher=Quiet())


def test_devices_learn_from_recordings_and_the_file_takes_raw_samples(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for tier in (1, 2):
        model = run / "run" / "onnx" / f"tier-{tier}.onnx"
        source = f"wav:{run / 'tones'}?name={{label}}_{{index}}&test=index<6&seconds={SECONDS}"
        assert main(["infer", str(model), source, "--format", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["labelled"] == 18
        assert answer["accuracy"] > 0.9
    session = onnxruntime.InferenceSession(model)
    assert session.get_inputs()[0].shape[1:] == [1, 2048]


def test_a_file_of_another_rate_is_resampled_and_a_service_takes_its_bytes(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.wav"
    write_wav(path, tone(300, 0.4, 16_000), rate=16_000)
    model = run / "run" / "onnx" / "tier-1.onnx"
    assert main(["infer", str(model), str(path), "--format", "json"]) == 0
    # A whole example of 0.256 s, and one with the other 0.144 s.
    first, second = json.loads(capsys.readouterr().out)["results"]
    assert (first["input"], second["input"]) == (f"{path}[0]", f"{path}[1]")
    assert first["top"][0]["name"] == "low"
    loaded = load_model(model, threads=1)
    request = read_request(path.read_bytes(), loaded)
    assert loaded.rank(loaded.predict(request.images)[0])[0].name == "low"


def test_eight_bits_leave_the_spectra_as_they_are(run: Path) -> None:
    source = f"wav:{run / 'tones'}?name={{label}}_{{index}}&test=index<6&seconds={SECONDS}"
    data, test = load_source(source), load_source(source, split="test")
    model = run / "run" / "onnx" / "tier-2.onnx"
    whole = load_model(model, threads=1)
    made = quantise_model(model.read_bytes(), data.inputs()[:30], whole.metadata)
    small = load_model(model, threads=1, data=made)
    assert len(made) < 0.6 * model.stat().st_size
    assert (small.accuracy(test.images, test.labels) or 0) > (
        whole.accuracy(test.images, test.labels) or 1
    ) - 0.06


def test_recordings_of_another_rate_are_refused_by_server_and_device(tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    write_wav(tmp_path / "low" / "1.wav", tone(300, 0.5, 16_000), rate=16_000)
    words = [f"data.source=wav:{tmp_path}", "model.name=speech-cnn", "num-clients=1", "rounds=1"]
    with pytest.raises(
        ConfigError, match="recordings of 16000 Hz, and 'speech-cnn' takes 8000: add rate=8000"
    ):
        simulate(load_config("fedavg", words), out=tmp_path / "run", watcher=Quiet())


def test_a_recording_is_refused_by_a_model_for_pictures(tmp_path: Path) -> None:
    words = ["data.source=digits", "model.name=mlp", "num-clients=2", "rounds=1", "workers=1"]
    with in_process():
        simulate(load_config("fedavg", words), out=tmp_path / "run", watcher=Quiet())
    write_wav(tmp_path / "a.wav", tone(300, 0.1))
    model = load_model(tmp_path / "run" / "onnx" / "tier-1.onnx", threads=1)
    with pytest.raises(ConfigError, match=r"this is a recording, and .* takes 1x8x8"):
        read_request((tmp_path / "a.wav").read_bytes(), model)
