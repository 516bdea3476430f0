"""The federation's class list: from its file, from the server's data or from its devices."""

import json
import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.agent.task_runner import do_training
from edge_client.data.local import LocalData
from edge_client.inference.onnx_model import load_model
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.evaluation import Testing as ServerData
from edge_server.rounds.events import PlanRound
from edge_server.rounds.state import RoundRules
from edge_server.simulation.simulator import simulate
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import Summary
from edge_server.storage.recovery import recover
from schemas.errors import ConfigError, PeerError
from tests.edge_server.simulation.in_process import in_process
from tests.integration.bench import Bench

TEN = tuple("0123456789")


def pictures(root: Path, *names: str, count: int = 5) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(np.full((8, 8), number * 9, np.uint8)).save(root / name / f"{number}.png")
    return root


def config(*words: str) -> Config:
    return load_config("fedavg", ["model.name=mlp", *words])


def named_source(path: Path, names: list[str], count: int = 20) -> str:
    images, labels = np.zeros((count, 8, 8), np.uint8), np.arange(count) % len(names)
    np.savez(path, images=images, labels=labels, class_names=np.array(names))
    return f"data.source=npz:{path}"


def test_the_file_states_the_classes_and_so_the_number_of_outputs() -> None:
    testing = ServerData(config('data.classes=["wasp","ant"]', "model.input-shape=[1,8,8]"))
    assert testing.model_spec.num_classes == 2
    assert testing.classes == testing.preprocessing.class_names == ("wasp", "ant")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (['data.classes=["a","b","c"]', "num-classes=2"], r"\[data\] classes: 3 are named.*num-classes is 2"),
        (['data.classes=["a","a"]'], "'a' is named more than once"),
        (['data.classes=["a",""]'], r"\[data\] classes"),
        (["data.classes=[]"], r"\[data\] classes"),
    ],
)
def test_an_invalid_class_list_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(*words)


def test_the_servers_class_names_are_the_list_in_their_own_order(tmp_path: Path) -> None:
    testing = ServerData(config(named_source(tmp_path / "a.npz", ["wasp", "ant"])))
    assert testing.classes == ("wasp", "ant")


def test_the_files_list_overrides_the_servers_names_and_must_contain_them(tmp_path: Path) -> None:
    source = named_source(tmp_path / "a.npz", ["wasp", "ant"])
    testing = ServerData(config(source, 'data.classes=["ant","bee","wasp"]'))
    assert testing.classes == ("ant", "bee", "wasp")
    assert testing.data is not None
    assert set(testing.data.labels) == {0, 2}
    with pytest.raises(ConfigError, match=r"\[data\] source: unknown class 'wasp'"):
        ServerData(config(source, 'data.classes=["ant","bee"]'))


def test_more_names_than_outputs_are_listed(tmp_path: Path) -> None:
    source = named_source(tmp_path / "a.npz", ["wasp", "ant", "bee"])
    with pytest.raises(ConfigError, match=r"num-classes: 2, .* 3 classes: leave.*'wasp', 'ant', 'bee'"):
        ServerData(config(source, "num-classes=2"))


def test_fewer_names_than_outputs_are_completed_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = named_source(tmp_path / "a.npz", ["wasp", "ant"])
    with caplog.at_level(logging.WARNING):
        testing = ServerData(config(source, "num-classes=4"))
    assert testing.classes == ("wasp", "ant", "class 2", "class 3")
    assert "2 of 4 classes are named: 'wasp', 'ant', 'class 2', 'class 3'" in caplog.text


def test_data_without_names_leaves_the_names_to_the_devices(caplog: pytest.LogCaptureFixture) -> None:
    testing = ServerData(config("data.source=digits"))
    assert testing.classes == ()
    testing.agree(TEN)
    assert testing.preprocessing.class_names == TEN
    assert not caplog.records
    testing.agree(tuple("abcdefghij"))
    assert "the labels of [data] source have no names" in caplog.text


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), "123"),
        # Who states more classes knows which one is missing here.
        (("num-classes=4",), "0123"),
        (("num-classes=10",), TEN),
        (('data.classes=["3","2","1"]',), "321"),
    ],
)
def test_labels_of_the_server_that_run_from_1_are_the_list(tmp_path, caplog, words, names) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 8, 8), np.uint8), labels=[1, 2, 3])
    with caplog.at_level(logging.INFO):
        testing = ServerData(config(f"data.source=npz:{tmp_path / 'a.npz'}", *words))
    assert testing.classes == tuple(names)
    assert testing.model_spec.num_classes == len(names)
    assert testing.data is not None
    assert [testing.classes[label] for label in testing.data.labels] == ["1", "2", "3"]
    assert ("labels without names are 1 to 3" in caplog.text) == (
        not any("classes=[" in word for word in words)
    )


def test_labels_of_the_server_beyond_the_outputs_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"num-classes: 4, but \[data\] source has 10 classes"):
        ServerData(config("data.source=digits", "num-classes=4"))


def test_classes_agreed_by_devices_are_in_tasks_and_journal_and_survive_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg")
    assert bench.coordinator.context.classes.is_open
    names = ("naught", *TEN[1:])
    planned = bench.coordinator.planner.plan(PlanRound(1, 1, bench.devices, classes=names))
    for assignment in planned.assignments.values():
        assert assignment.task.preprocessing.class_names == names
    bench.coordinator.storage.close()
    with closing(JournalReader(bench.folder.journal)) as reader:
        recovered = recover(reader, RoundRules(rounds=3), "federation", now=0.0)
    assert recovered is not None
    again = assemble(bench.coordinator.context.config, "run-1", bench.folder, resume=recovered.resumption)
    assert again.context.classes.names == names
    task = again.planner.plan(PlanRound(1, 2, bench.devices)).assignments["weak"].task
    assert task.preprocessing.class_names == names
    again.storage.close()


def test_the_files_class_list_is_in_the_journal_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", f"data.classes={json.dumps(TEN)}")
    bench.tasks(1, 1)
    bench.coordinator.planner.plan(
        PlanRound(1, 2, bench.devices, classes=bench.coordinator.context.classes.names)
    )
    with closing(JournalReader(bench.folder.journal)) as reader:
        assert reader.classes() == TEN


def test_every_file_of_a_tier_names_its_classes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", f"data.classes={json.dumps([f'digit {name}' for name in TEN])}")
    bench.round(1)
    for path in bench.coordinator.exporter.export_tiers().values():
        assert load_model(path, threads=1).class_name(3) == "digit 3"


def test_devices_with_different_folders_train_the_same_labels(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", f"data.classes={json.dumps(TEN)}")
    task = bench.tasks(1, 1)["weak"]
    whole = bench.places["weak"].data.train
    # The same digits on a device that names its classes and has only three of them.
    kept = np.isin(whole.labels, [3, 7, 9])
    labels = np.searchsorted([3, 7, 9], whole.labels[kept])
    own = replace(whole, images=whole.images[kept], labels=labels, class_names=("3", "7", "9"), named=True)
    place = replace(bench.places["weak"], data=LocalData(own, own.subset([])))
    by_name = do_training(task, place, on_epoch=lambda _: None, should_stop=lambda: False)
    place = replace(place, data=LocalData(whole.subset(np.flatnonzero(kept)), own.subset([])))
    by_number = do_training(task, place, on_epoch=lambda _: None, should_stop=lambda: False)
    assert by_name.blob.digest == by_number.blob.digest


def test_a_device_declines_a_task_of_other_classes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", f"data.classes={json.dumps(TEN)}")
    task = bench.tasks(1, 1)["weak"]
    whole = replace(bench.places["weak"].data.train, class_names=tuple("abcdefghij"), named=True)
    place = replace(bench.places["weak"], data=LocalData(whole, whole))
    with pytest.raises(PeerError, match=r"unknown class 'a', 'b'.*the federation knows '0', '1'"):
        do_training(task, place, on_epoch=lambda _: None, should_stop=lambda: False)


class Unseen:
    def show(self, snapshot: object) -> None:
        """Ignore the snapshot."""


@in_process()
def test_a_simulation_names_the_classes_of_its_folder(tmp_path: Path) -> None:
    source = pictures(tmp_path / "photos", "wasp", "ant", count=20)
    wanted = config(
        *(f"data.source=folder:{source}", "rounds=1", "num-clients=2", "workers=1", "batch-size=8"),
        'data.classes=["wasp","bee","ant"]',
    )
    summary = simulate(wanted, out=tmp_path / "run", watcher=Unseen())
    assert isinstance(summary, Summary)
    assert summary.outcome == "finished", summary.detail
    model = load_model(tmp_path / "run" / "onnx" / "tier-1.onnx", threads=1)
    assert model.preprocessing.class_names == ("wasp", "bee", "ant")
    with closing(JournalReader(tmp_path / "run" / "journal.sqlite")) as reader:
        assert reader.classes() == ("wasp", "bee", "ant")


@in_process()
@pytest.mark.parametrize("stated", [(), ('data.classes=["3","1","2"]',)])
def test_a_simulation_of_labels_from_1_has_no_class_0(tmp_path: Path, stated: tuple[str, ...]) -> None:
    labels = np.arange(60) % 3 + 1
    np.savez(
        tmp_path / "a.npz", images=(labels * 60)[:, None, None] * np.ones((8, 8), np.uint8), labels=labels
    )
    wanted = config(
        f"data.source=npz:{tmp_path / 'a.npz'}", "rounds=1", "num-clients=2", "workers=1", *stated
    )
    summary = simulate(wanted, out=tmp_path / "run", watcher=Unseen())
    assert isinstance(summary, Summary)
    assert summary.outcome == "finished", summary.detail
    model = load_model(tmp_path / "run" / "onnx" / "tier-1.onnx", threads=1)
    assert model.preprocessing.class_names == (("3", "1", "2") if stated else ("1", "2", "3"))


@in_process()
def test_a_simulation_without_names_uses_numbers(tmp_path: Path) -> None:
    wanted = config("data.source=digits", "rounds=1", "num-clients=2", "workers=1", "samples-per-client=20")
    assert simulate(wanted, out=tmp_path / "run", watcher=Unseen()).outcome == "finished"
    model = load_model(tmp_path / "run" / "onnx" / "tier-1.onnx", threads=1)
    assert model.preprocessing.class_names == TEN
