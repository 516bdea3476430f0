"""Rounds of statistics: over a broker, in a simulation, and before a run that scales its inputs by them."""

import json
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent import task_runner
from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.task_runner import do_statistics
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_server.cli.main import main
from edge_server.config.config import Config
from edge_server.config.load import differences, load_config
from edge_server.coordinator.evaluation import Testing as ServerTesting
from edge_server.coordinator.launch import serve
from edge_server.coordinator.replay import replay
from edge_server.observability.data_statistics import last_statistics, statistics_rows
from edge_server.observability.snapshot import WatcherGroup
from edge_server.storage.records import RoundRecord, Summary
from edge_server.strategy.data_statistics import next_request
from schemas.statistics import StatisticsRequest
from schemas.tensors.files import FileGroups
from schemas.values import CapabilityProfile, TrainerName
from tests.integration.bench import Bench
from tests.integration.conftest import ONE_BROKER
from tests.slow import mark_slow

WORDS = ("data.source=digits", "model.name=mlp", "num-clients=3", "workers=1")


def history(folder: Path) -> list[RoundRecord]:
    return [
        RoundRecord.model_validate_json(line) for line in (folder / "history.jsonl").read_text().splitlines()
    ]


def test_statistics_change_no_model_and_are_those_of_the_data(tmp_path: Path) -> None:
    words = ("federation.statistics=true", "model.name=mlp", 'training.mirror=["left-right"]')
    bench = Bench(tmp_path, "attending", *words)
    before = bench.coordinator.model.sha256
    first, _ = bench.round(1)
    known = bench.coordinator.model.state.observed
    read_back = bench.folder.load_state(1).observed
    again, kept = (next_request(f["statistics"], StatisticsRequest()) for f in (read_back, known))
    assert again == kept
    second, updates = bench.round(2)
    assert bench.coordinator.model.sha256 == before
    assert all(update.blob.size < 10_000 for update in updates.values())
    assert first.statistics is not None
    assert first.statistics.features.histogram == ()
    found, images = second.statistics, bench.places["weak"].data.train.images
    assert found is not None
    # Both devices have the same data.
    np.testing.assert_allclose(found.features.mean, images.mean(), rtol=1e-9)
    np.testing.assert_allclose(found.features.variance, images.astype(np.float64).var(), rtol=1e-9)
    assert sum(found.labels.values()) == found.examples == 2 * len(images)


class Fleet:
    """Agents in threads."""

    def __init__(self, address, folder: Path) -> None:
        self._address, self._folder, self._agents = address, folder, list[Agent]()
        self._pool = ThreadPoolExecutor(4)

    def add(self, name: str, data: LabelledData, trainer: TrainerName = "torch", *, tier: int = 1) -> None:
        """A device that holds out nothing and leaves after the run."""
        settings = AgentSettings(
            *("test", name, self._address, self._folder / name, "npz:data.npz"),
            CapabilityProfile(tier=tier, trainers=(trainer,)),
            once=True,
            threads=1,
        )
        settings.state.mkdir(parents=True)
        agent = Agent(settings, LocalData(data, data.subset(())))
        self._agents.append(agent)
        self._pool.submit(agent.run)

    def serve(self, config: Config, out: Path) -> Summary:
        """Run the federation to its end, and that of the agents."""
        try:
            return serve(config, self._address, WatcherGroup(), out=out)
        finally:
            for agent in self._agents:
                agent.stop()
            self._pool.shutdown()


def rows(classes: tuple[int, ...], count: int, seed: int) -> LabelledData:
    rng = np.random.default_rng(seed)
    images = (rng.normal(size=(count, 3)) * [1, 10, 100] + [0, 5, 1000]).astype(np.float32)
    return make_labelled_data(images, rng.choice(classes, count), class_names=("a", "b", "c"))


def lying(task, request, context):
    """The device `hostile` claims a sum that its values cannot have."""
    update = do_statistics(task, request, context)
    if context.device != "hostile":
        return update
    honest = FileGroups(context.store.blob_path(update.blob.digest))
    groups = {group: {name: np.array(arrays[name]) for name in arrays} for group, arrays in honest.items()}
    groups["features"]["sum"][0] = 1e30
    return update.model_copy(update={"blob": context.store.put_groups(groups)})


@ONE_BROKER
def test_a_run_scales_by_what_its_devices_answer(
    address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "do_statistics", lying)
    words = ["federation.name=test", "model.name=mlp", "model.input-shape=[3]", "data.scaling=federated"]
    words += ["data.classes=['a','b','c']", "num-clients=4", "rounds=1", "deliver=none", "deadline-s=60"]
    one_class, several = rows((1,), 30, 0), rows((0, 1, 2), 50, 1)
    fleet = Fleet(address, tmp_path)
    fleet.add("one-class", one_class)
    fleet.add("no-torch", several, "onnx")
    fleet.add("hostile", rows((0, 1), 20, 2))
    fleet.add("few", rows((0, 1), 4, 3))
    assert fleet.serve(load_config("fedavg", words), tmp_path / "run").outcome == "finished"
    found = history(tmp_path / "run" / "statistics")[-1]
    assert found.completed == ("no-torch", "one-class")
    assert [(refused.device, refused.reason) for refused in found.rejected] == [("hostile", "out-of-bounds")]
    assert found.statistics is not None
    assert found.statistics.labels["b"] == 30 + (several.labels == 1).sum()
    pooled = np.concatenate([one_class.images, several.images]).astype(np.float64)
    np.testing.assert_allclose(found.statistics.features.mean, pooled.mean(0), rtol=1e-9)
    stated = tomllib.loads((tmp_path / "run" / "federation.toml").read_text())["data"]["statistics"]
    np.testing.assert_allclose(stated["std"], pooled.std(0), rtol=1e-9)
    manifest = json.loads((tmp_path / "run" / "models" / "round-0001" / "manifest.json").read_text())
    about = manifest["preprocessing"]
    np.testing.assert_allclose(np.multiply(about["mean"], about["scale"]), pooled.mean(0))
    again = [*replay(tmp_path / "run" / "statistics"), *replay(tmp_path / "run")]
    assert [replayed.verdict for replayed in again] == ["agrees"] * 3
    lines = tmp_path / "run" / "statistics" / "history.jsonl"
    first, last = map(json.loads, lines.read_text().splitlines())
    last["statistics"]["examples"] += 1
    lines.write_text(f"{json.dumps(first)}\n{json.dumps(last)}\n")
    altered = [replayed.verdict for replayed in replay(tmp_path / "run" / "statistics")]
    assert altered == ["agrees", "differs"]
    config = load_config("fedavg", words)
    assert not any(differences(tmp_path / "run" / "federation.toml", config))
    # The devices, which leave after a run, have waited for the one that trains.
    assert set(history(tmp_path / "run")[-1].completed) >= {"one-class", "no-torch"}


@ONE_BROKER
def test_masked_answers_are_seen_in_sum_alone(address, tmp_path: Path) -> None:
    words = ["federation.name=test", "model.name=mlp", "model.input-shape=[3]", "data.classes=['a','b','c']"]
    words += ["num-clients=4", "deliver=none", "deadline-s=60", "privacy.secure-aggregation=true"]
    words += ["data.statistics={mean=[1,0,800], std=[2,20,200]}", "federation.statistics=true"]
    parts = [rows((0, 1, 2), 30 + 10 * index, index) for index in range(4)]
    fleet = Fleet(address, tmp_path)
    for index, data in enumerate(parts):
        fleet.add(f"pi-{index}", data, "onnx")
    config = load_config("heterofl", words).for_statistics()
    assert fleet.serve(config, tmp_path / "run").outcome == "finished"
    found = last_statistics(tmp_path / "run")
    assert found is not None
    assert (found.devices, found.examples) == (4, 180)
    pooled = np.concatenate([part.images for part in parts]).astype(np.float64)
    std = pooled.std(0)
    assert (np.abs(np.array(found.features.mean) - pooled.mean(0)) < 1e-5 * std).all()
    np.testing.assert_allclose(found.features.variance, std**2, rtol=1e-4)
    median = [row.quantiles[0.5] for row in statistics_rows(found)]
    assert (np.abs(np.array(median) - np.median(pooled, 0)) < 0.05 * std).all()
    labels = np.concatenate([part.labels for part in parts])
    assert list(found.labels.values()) == np.bincount(labels).tolist()
    assert [replayed.verdict for replayed in replay(tmp_path / "run")] == ["agrees"] * 2


def test_the_command_prints_and_writes_what_a_federation_file_may_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s"
    assert main(["statistics", "attending", *WORDS, "--simulate", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1,438 examples of 3 devices" in printed
    assert "off by at most" in " ".join(printed.split())
    data = load_source("digits").images.astype(np.float64)
    (mean,) = tomllib.loads((out / "statistics.toml").read_text())["data"]["statistics"]["mean"]
    assert abs(mean - data.mean()) < 0.1
    assert json.loads((out / "statistics.json").read_text())["features"][0]["most"] == 16
    stated = load_config("fedavg", [*WORDS, f"data.statistics={{mean = [{mean}], std = [6.0]}}"])
    about = ServerTesting(stated).preprocessing
    assert (about.mean, about.std) == ((mean / 16,), (6 / 16,))


@mark_slow
def test_a_resumed_run_keeps_its_figures_and_asks_nobody_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["simulate", "attending", *WORDS, "data.scaling=federated", "local-epochs=1"]
    words += ["deliver=none", "--out", str(out)]
    assert main([*words, "rounds=1"]) == 0
    asked = last_statistics(out / "statistics")
    assert asked is not None
    kept = load_config(str(out / "federation.toml")).data.statistics
    (out / "statistics" / "summary.json").unlink()
    assert main([*words, "rounds=2", "--resume"]) == 0
    assert not (out / "statistics" / "summary.json").exists()
    assert kept is not None
    assert load_config(str(out / "federation.toml")).data.statistics == kept
    assert kept.mean == asked.features.mean
    words = [str(out), *words[1:6], "data.scaling=federated", "simulation.hold-out=0.2", "--simulate"]
    assert main(["evaluate", *words, "--out", str(tmp_path / "e")]) == 0
    # A model is measured with the scaling that it was trained with.
    assert not (tmp_path / "e" / "statistics").exists()
    (measured,) = load_config(str(tmp_path / "e" / "federation.toml")).data.statistics.mean
    assert measured == pytest.approx(kept.mean[0])
