"""The federation's columns: from its file, the server's data or its devices; in tasks, journal and models."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.data.columns import features_of
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.evaluation import Testing as ServerData
from edge_server.coordinator.initial_model import find_initial_model
from edge_server.coordinator.scaling import scaling_of, write_results
from edge_server.rounds.events import PlanRound
from edge_server.rounds.state import RoundRules
from edge_server.simulation.simulator import simulate
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import DataStatistics, Distribution
from edge_server.storage.recovery import recover
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.messages import TrainTask
from tests.edge_server.coordinator.test_class_names import Unseen
from tests.edge_server.simulation.in_process import in_process
from tests.integration.bench import Bench

A, B = ("temperature", "co2"), ("co2", "temperature")


def sensors(path: Path, order: tuple[str, ...], count: int = 60, unit: str = "") -> str:
    """A table with the same rows in any order of its columns: a busy room is warm and its air is used."""
    rng = np.random.default_rng(0)
    busy = np.arange(count) % 2
    values = {
        "temperature": 18 + 4 * busy + rng.normal(0, 0.5, count),
        "co2": 400 + 500 * busy + rng.normal(0, 20, count),
    }
    headers = [f"{name} [{unit}]" if unit and name == "temperature" else name for name in order]
    lines = [",".join((*headers, "state"))]
    for n in range(count):
        lines.append(",".join([*(f"{values[name][n]:.3f}" for name in order), ("free", "busy")[busy[n]]]))
    path.write_text("\n".join(lines) + "\n")
    return f"csv:{path}?label=state"


def config(*words: str, shaped: bool = True) -> Config:
    shape = ["model.input-shape=[2]", "num-classes=2"] if shaped else []
    return load_config("fedavg", ["model.name=mlp", *shape, *words])


def names(testing: ServerData) -> list[str]:
    return [column.in_words() for column in testing.preprocessing.columns]


# --- where the server knows its columns from ---
def test_the_file_states_the_columns() -> None:
    assert names(ServerData(config('data.columns=["temperature [°C]","co2"]'))) == ["temperature [°C]", "co2"]


def test_else_the_servers_data_does(tmp_path: Path) -> None:
    testing = ServerData(config(f"data.source={sensors(tmp_path / 'b.csv', B)}"))
    assert names(testing) == [*B]


def test_else_the_figures_do_with_which_the_file_scales_them() -> None:
    words = 'data.statistics={mean=[20,600],std=[2,100],columns=["temperature","co2"]}'
    testing = ServerData(config(words))
    assert names(testing) == [*A]
    testing.agree((), features_of(B))
    # The figures follow their columns; the scale of 255 is that of inputs that the server does not know.
    assert testing.preprocessing.mean == (600 / 255, 20 / 255)


def test_the_servers_data_and_figures_are_put_into_the_files_order(tmp_path: Path) -> None:
    source = sensors(tmp_path / "b.csv", B, unit="°C")
    own, testing = (
        load_source(source),
        ServerData(
            config(
                f"data.source={source}",
                'data.columns=["temperature","co2"]',
                'data.statistics={mean=[600,20],std=[100,2],columns=["co2","temperature"]}',
            )
        ),
    )
    assert names(testing) == ["temperature [°C]", "co2"]
    assert testing.data is not None
    np.testing.assert_array_equal(testing.data.images, own.images[:, ::-1])
    assert testing.preprocessing.mean == (20.0, 600.0)
    assert testing.preprocessing.std == (2.0, 100.0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ('data.columns=["a","a"]', "'a' is named more than once"),
        ('data.columns=["a","b","c"]', r"\[data\] columns: 3 are named, and 'mlp' takes 2: name as many"),
        ("data.columns=[]", r"\[data\] columns"),
        (
            'data.statistics={mean=[1,2],std=[1,1],columns=["a","x"]}',
            r"\[data.statistics\] columns: unknown column 'x' and no column 'b'",
        ),
    ],
)
def test_an_invalid_list_is_refused(words: str, why: str) -> None:
    stated = [] if words.startswith("data.columns") else ['data.columns=["a","b"]']
    with pytest.raises(ConfigError, match=why):
        ServerData(config(words, *stated))


def test_data_of_the_server_with_other_columns_is_refused_with_both_lists(tmp_path: Path) -> None:
    source = sensors(tmp_path / "a.csv", A)
    with pytest.raises(ConfigError, match=r"\[data\] source: unknown column 'temperature'.*'x'.*'co2' \(2\)"):
        ServerData(config(f"data.source={source}", 'data.columns=["x","co2"]'))


def test_a_pass_of_statistics_names_the_columns_of_its_figures(tmp_path: Path) -> None:
    figures = Distribution(count=(9, 9), mean=(20, 600), variance=(4, 10000), least=(15, 400), most=(25, 900))
    found = DataStatistics(devices=2, examples=9, features=figures, columns=("temperature [°C]", "co2"))
    assert scaling_of(found).columns == found.columns
    (tmp_path / "f.toml").write_text(
        '[model]\nname = "mlp"\ninput-shape = [2]\nnum-classes = 2\n\n[strategy]\n\n'
        + write_results(tmp_path, found).read_text()
    )
    assert names(ServerData(load_config(str(tmp_path / "f.toml")))) == ["temperature [°C]", "co2"]


# --- tasks, journal, model files ---
def bench_of(folder: Path, order: tuple[str, ...] = A, *words: str) -> Bench:
    """A bench whose server has such data, and whose devices have the same in both orders."""
    source = sensors(folder / "server.csv", order)
    bench = Bench(folder, "fedavg", f"data.source={source}", "model.name=mlp", *words)
    for name, own in zip(("weak", "strong"), (A, B), strict=True):
        data = load_source(sensors(folder / f"{name}.csv", own))
        bench.places[name] = replace(bench.places[name], data=LocalData(data, data.subset(range(10))))
    bench.devices = tuple(
        replace(device, data=device.data.model_copy(update={"columns": features_of(A)}))
        for device in bench.devices
    )
    return bench


def trained(task: TrainTask, place: TaskContext) -> str:
    return do_training(task, place, on_epoch=lambda _: None, should_stop=lambda: False).blob.digest


def test_devices_with_tables_in_other_orders_make_the_same_update(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    task: Any = bench.tasks(1, 1)["weak"]
    assert task.preprocessing.columns == bench.coordinator.context.testing.columns
    place = bench.places["weak"]
    other = replace(place, data=bench.places["strong"].data)
    assert trained(task, place) == trained(task, other)


def test_every_file_of_a_tier_names_its_columns(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    bench.round(1)
    for path in bench.coordinator.exporter.export_tiers().values():
        assert load_model(path, threads=1).preprocessing.columns == bench.coordinator.context.testing.columns


def test_agreed_columns_are_in_the_journal_and_survive_a_restart(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    agreed = features_of(["co2", "temperature [°C]"])
    bench.coordinator.planner.plan(PlanRound(1, 1, bench.devices, columns=agreed))
    bench.coordinator.storage.close()
    with closing(JournalReader(bench.folder.journal)) as reader:
        recovered = recover(reader, RoundRules(rounds=3), "federation", now=0.0)
    assert recovered is not None
    again = assemble(bench.coordinator.context.config, "run-1", bench.folder, resume=recovered.resumption)
    assert again.context.columns.columns == agreed
    assert again.context.testing.data is not None
    assert again.context.testing.data.columns == agreed
    task = again.planner.plan(PlanRound(1, 2, bench.devices)).assignments["weak"].task
    assert task.preprocessing.columns == agreed
    again.storage.close()


# --- a model to start from ---
def test_a_run_takes_the_columns_of_the_model_that_it_starts_from_also_after_a_restart(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path)
    bench.round(1)
    bench.coordinator.storage.close()
    (tmp_path / "next").mkdir()
    begun = config(
        f"data.source={sensors(tmp_path / 'b.csv', B)}", f"model.from={bench.folder.path}", shaped=False
    )
    first = find_initial_model(begun, [])
    folder = RunFolder.create(tmp_path / "next" / "run", begun)
    made = assemble(begun, "run-2", folder, first=first)
    assert [column.name for column in made.context.columns.columns] == [*A]
    assert made.context.testing.data is not None
    assert made.context.testing.data.images[0, 0] < 100
    made.storage.close()
    with closing(JournalReader(folder.journal)) as reader:
        assert reader.columns() == made.context.testing.columns


def test_a_model_of_other_columns_is_no_start(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    bench.round(1)
    bench.coordinator.storage.close()
    first = find_initial_model(config(f"model.from={bench.folder.path}"), [])
    assert first is not None
    with pytest.raises(ConfigError, match=r"\[model\] from: .*unknown column 'x' and no column 'co2'"):
        first.check_columns(features_of(["temperature", "x"]))


# --- simulation ---
@in_process()
def test_a_simulation_trains_in_the_files_order(tmp_path: Path) -> None:
    wanted = config(
        *(f"data.source={sensors(tmp_path / 'b.csv', B, count=100)}", 'data.columns=["temperature","co2"]'),
        *("rounds=2", "num-clients=2", "workers=1", "batch-size=8", "learning-rate=0.1", "local-epochs=5"),
        shaped=False,
    )
    summary = simulate(wanted, out=tmp_path / "run", watcher=Unseen())
    assert (summary.outcome, summary.test_accuracy) == ("finished", 1.0)
    model = load_model(tmp_path / "run" / "onnx" / "tier-1.onnx", threads=1)
    assert [column.in_words() for column in model.preprocessing.columns] == [*A]
    data = model.fit(load_source(sensors(tmp_path / "c.csv", B)))
    assert model.accuracy(data.images, data.labels) == 1.0
