"""A run that starts from another run's model: lookup, compatibility checks and recorded origin."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_server.cli.main import main
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import Coordinator, assemble
from edge_server.coordinator.initial_model import InitialModel, find_initial_model
from edge_server.releases.registry.describe import describe_run
from edge_server.releases.registry.register import enter_run
from edge_server.releases.registry.registry import Registry, Version
from edge_server.simulation.simulator import simulate
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.tensors.files import FileGroups
from tests.edge_server.own_networks import NAME
from tests.edge_server.simulation.in_process import in_process

FIXED = ("rounds=1", "num-clients=2", "workers=1", "learning-rate=0.001")


def file(*words: str, network: str = "hidden", source: str = "pictures") -> Config:
    named = [f"data.source=python:{NAME}:{source}", f"model.name={NAME}:{network}"]
    return load_config("fedavg", [*named, *FIXED, *words])


class Nobody:
    def show(self, snapshot: object) -> None: ...


def params_in(folder: Path) -> Mapping[str, Any]:
    return FileGroups(folder / "state.safetensors")["model"]


def begun(config: Config, folder: Path, first: InitialModel | None = None) -> Coordinator:
    """Assemble a new run in `folder`."""
    return assemble(config, "run-1", RunFolder.create(folder, config), first=first)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create a run folder with the models of rounds 0 and 10; the values of round 10 are doubled."""
    config = file("federation.seed=7")
    coordinator = begun(config, tmp_path / "first")
    coordinator.storage.close()
    first = tmp_path / "first" / "models" / "round-0000"
    manifest = json.loads((first / "manifest.json").read_text())
    own = {"round", "state_sha256", "channel_map_sha256"}
    doubled = {name: 2 * np.array(params_in(first)[name]) for name in params_in(first)}
    channel_map = coordinator.context.channel_map
    rest = {key: value for key, value in manifest.items() if key not in own}
    RunFolder(tmp_path / "first").save_model(10, doubled, channel_map, rest)
    return tmp_path / "first"


def test_a_run_starts_from_a_round_folder_a_state_file_or_a_runs_last_model(
    source: Path, tmp_path: Path
) -> None:
    last = source / "models" / "round-0010"
    for number, place in enumerate((source, last, last / "state.safetensors")):
        config = file(f"from={place}")
        coordinator = begun(config, tmp_path / f"second-{number}", find_initial_model(config, []))
        coordinator.storage.close()
        mine = params_in(tmp_path / f"second-{number}" / "models" / "round-0000")
        assert set(mine) == set(params_in(last))
        assert all(np.array_equal(mine[name], params_in(last)[name]) for name in mine)
        about = coordinator.model.started_from
        assert about is not None
        assert (about.run, about.round, about.version) == ("run-1", 10, None)
        assert coordinator.model.notices == (f"starts from {place} (run run-1, round 10)",)


def test_without_from_a_run_begins_with_its_own_network(tmp_path: Path) -> None:
    assert find_initial_model(file(), []) is None
    coordinator = begun(file(), tmp_path / "run")
    coordinator.storage.close()
    assert (coordinator.model.started_from, coordinator.model.notices) == (None, ())


MISFITS = {
    "another network": (
        {"network": "normed"},
        "is not of the network 'tests.edge_server.own_networks:normed' for (1, 4, 4) and 3 classes: "
        "'1.bias' is (10,), not (8,); '1.weight' is (10, 16), not (8, 16); ",
    )
}


@pytest.mark.parametrize("what", MISFITS)
def test_a_model_that_does_not_fit_is_refused_with_the_differences(
    what: str, source: Path, tmp_path: Path
) -> None:
    options, message = MISFITS[what]
    config = file(f"from={source}", **options)
    with pytest.raises(ConfigError) as raised:
        simulate(config, out=tmp_path / "second", watcher=Nobody())
    assert str(raised.value).startswith(f"[model] from: {source} is ")
    assert message in str(raised.value)
    assert not (tmp_path / "second").exists()


def rename_classes(source: Path, *names: str) -> None:
    path = source / "models" / "round-0010" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["preprocessing"]["class_names"] = names
    path.write_text(json.dumps(manifest))


def started(config: Config, folder: Path) -> Coordinator:
    """Assemble a run that starts from the model that the configuration names."""
    coordinator = begun(config, folder, find_initial_model(config, []))
    coordinator.storage.close()
    return coordinator


def rows(params: Mapping[str, Any], names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Weights and bias of the output layer by class."""
    return {
        name: (params["3.weight"][n].tolist(), float(params["3.bias"][n])) for n, name in enumerate(names)
    }


def test_known_classes_keep_their_rows_whatever_their_order_and_new_ones_are_drawn(
    source: Path, tmp_path: Path
) -> None:
    rename_classes(source, "dog", "cat", "hen")
    names = ("ant", "hen", "cat", "dog", "yak")
    config = file(f"from={source}", f"data.classes={json.dumps(names)}", source="named_pictures")
    drawn = begun(file(f"data.classes={json.dumps(names)}", source="named_pictures"), tmp_path / "drawn")
    drawn.storage.close()
    coordinator = started(config, tmp_path / "second")
    mine, theirs = coordinator.model.state.params, params_in(source / "models" / "round-0010")
    fresh = rows(drawn.model.state.params, names)
    assert rows(mine, names) == {
        **rows({name: np.array(theirs[name]) for name in theirs}, ("dog", "cat", "hen")),
        "ant": fresh["ant"],
        "yak": fresh["yak"],
    }
    assert all(np.array_equal(mine[name], theirs[name]) for name in ("1.weight", "1.bias"))
    about = coordinator.model.started_from
    assert about is not None
    assert (about.new_classes, about.left_classes) == (("ant", "yak"), ())
    assert coordinator.model.notices == (f"starts from {source} (run run-1, round 10); new: 'ant', 'yak'",)
    assert coordinator.context.classes.names == names
    # The run that was interrupted at its start reads its own copy, whose classes are the run's.
    again = find_initial_model(config, [], RunFolder(tmp_path / "second"))
    assert again is not None
    spec, channel_map = coordinator.context.spec, coordinator.context.channel_map
    params, same = again.read(spec, channel_map, drawn.model.state.params, names)
    assert same == about
    assert all(np.array_equal(mine[name], params[name]) for name in params)


def test_a_detector_keeps_the_rows_of_known_classes(tmp_path: Path) -> None:
    words = ("model.name=detector:cnn", "model.task=detection", "model.input-shape=[3, 32, 32]", *FIXED)
    begun(load_config("fedavg", [*words, 'data.classes=["cat", "dog"]']), tmp_path / "first").storage.close()
    wider = [*words, 'data.classes=["dog", "yak", "cat"]', f"from={tmp_path / 'first'}"]
    coordinator = started(load_config("fedavg", wider), tmp_path / "second")
    mine, theirs = coordinator.model.state.params, params_in(tmp_path / "first" / "models" / "round-0000")
    for array in ("head.classes.weight", "head.classes.bias"):
        assert np.array_equal(mine[array][[2, 0]], theirs[array])
    about = coordinator.model.started_from
    assert about is not None
    assert about.new_classes == ("yak",)


def test_a_class_that_the_run_leaves_out_is_named(source: Path, tmp_path: Path) -> None:
    rename_classes(source, "dog", "cat", "hen")
    config = load_config(
        "fedavg",
        [
            f"model.name={NAME}:hidden",
            "model.input-shape=[1,4,4]",
            'data.classes=["cat","hen"]',
            f"from={source}",
        ],
    )
    coordinator = started(config, tmp_path / "second")
    theirs = params_in(source / "models" / "round-0010")
    expected = rows({name: np.array(theirs[name]) for name in theirs}, ("dog", "cat", "hen"))
    assert rows(coordinator.model.state.params, ("cat", "hen")) == {n: expected[n] for n in ("cat", "hen")}
    assert coordinator.model.notices[-1].endswith("; without: 'dog'")


@in_process()
def test_classes_without_names_are_added_by_number_and_learned(source: Path, tmp_path: Path) -> None:
    config = file(f"from={source}", source="four_kinds")
    summary = simulate(config, out=tmp_path / "second", watcher=Nobody(), export=False)
    assert summary.outcome == "finished"
    assert summary.started_from is not None
    assert summary.started_from.new_classes == ("3",)


def test_classes_of_which_none_is_known_and_one_that_nobody_trains_are_refused(
    source: Path, tmp_path: Path
) -> None:
    rename_classes(source, "ox", "yak", "elk")
    config = file(f"from={source}", source="named_pictures")
    message = (
        r"is a model of the classes 'ox', 'yak', 'elk' \(3\), this run has 'cat', 'dog', 'hen' \(3\): none "
        r"is the same; name the run's classes in \[data\] classes"
    )
    with pytest.raises(ConfigError, match=message):
        simulate(config, out=tmp_path / "second", watcher=Nobody())
    rename_classes(source, "cat", "dog", "elk")
    begun(config, tmp_path / "third", find_initial_model(config, [])).storage.close()
    asked = file("federation.trains=false", f"from={source}", source="named_pictures")
    with pytest.raises(ConfigError, match=r"does not know 'hen', and nothing is trained: leave such classes"):
        begun(asked, tmp_path / "fourth", find_initial_model(asked, []))


def test_other_classes_need_a_linear_output_layer(source: Path, tmp_path: Path) -> None:
    config = file(f"from={source}", network="scaled", source="four_kinds")
    with pytest.raises(
        ConfigError, match=r"has other classes than this run, or in another order: .* no header"
    ):
        started(config, tmp_path / "second")


def test_a_run_without_class_names_uses_the_models_names(source: Path, tmp_path: Path) -> None:
    rename_classes(source, "dog", "cat", "hen")
    shapes = ["model.input-shape=[1,4,4]", "num-classes=3"]
    config = load_config("fedavg", [f"model.name={NAME}:hidden", *shapes, f"from={source}"])
    coordinator = begun(config, tmp_path / "second", find_initial_model(config, []))
    coordinator.storage.close()
    assert coordinator.context.classes.names == ("dog", "cat", "hen")
    manifest = tmp_path / "second" / "models" / "round-0000" / "manifest.json"
    assert json.loads(manifest.read_text())["preprocessing"]["class_names"] == ["dog", "cat", "hen"]


def test_a_damaged_model_is_refused(source: Path) -> None:
    path = source / "models" / "round-0010" / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    config, spec = file(f"from={source}"), None
    start = find_initial_model(config, [])
    assert start is not None
    coordinator = assemble(config, "run-1", RunFolder.create(source.parent / "other", file()))
    spec, channel_map = coordinator.context.spec, coordinator.context.channel_map
    coordinator.storage.close()
    own = coordinator.model.state.params
    with pytest.raises(ConfigError, match=r"is damaged: it is not what its manifest.json says"):
        start.read(spec, channel_map, own, ())
    path.write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match=r"\[model\] from: .*state.safetensors is not a model of a run: "):
        start.read(spec, channel_map, own, ())


@pytest.mark.parametrize("text", ["nowhere", "home-2", "empty"])
def test_a_source_that_is_not_a_model_is_refused_with_the_nearest_version(text: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    registry = Registry(tmp_path / "registry")
    registry.enter(version("home-1"), lambda folder: None)
    stated = str(tmp_path / "empty") if text == "empty" else text
    with pytest.raises(ConfigError) as raised:
        find_initial_model(file(f"from={stated}"), [tmp_path / "nothing", tmp_path / "registry"])
    hint = " (did you mean 'home-1'?)" if text == "home-2" else ""
    assert str(raised.value).startswith(
        f"[model] from: '{stated}' is not a version of a registry{hint}, a run fol"
    )


def version(name: str) -> Version:
    return Version.model_validate(
        {
            "version": name,
            "federation": "home",
            "run": name,
            "round": 1,
            "rounds": 1,
            "outcome": "finished",
            "model": "mlp",
            "parameters": 1,
            "created_at": 0.0,
            "tiers": [],
        }
    )


def test_check_shows_the_model_a_run_would_start_from(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"data.source=python:{NAME}:pictures", f"model.name={NAME}:hidden"]
    assert main(["check", "attending", *words, f"from={source}"]) == 0
    shown = capsys.readouterr().out
    assert f"# starts from {source} (run run-1, round 10)\n" in shown
    assert f'from = "{source}"\n' in shown
    assert main(["check", "attending", *words, "from=nowhere"]) == 2
    assert "attending: [model] from: 'nowhere' is not a version" in capsys.readouterr().err


def test_a_run_interrupted_at_its_start_reads_its_own_copy(source: Path, tmp_path: Path) -> None:
    config = file(f"from={source}")
    before = begun(config, tmp_path / "second", find_initial_model(config, []))
    before.storage.close()
    shutil.rmtree(source)
    with pytest.raises(ConfigError, match="is not a version of a registry"):
        find_initial_model(config, [])
    found = find_initial_model(config, [], RunFolder(tmp_path / "second"))
    assert found is not None
    context = before.context
    _, about = found.read(context.spec, context.channel_map, before.model.state.params, context.classes.names)
    assert about == before.model.started_from


@in_process()
def test_a_version_is_continued_and_recorded_and_not_read_again(source: Path, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    model = source / "models" / "round-0010"
    registry.enter(version("home-1"), lambda folder: shutil.copytree(model, folder / "model"))
    config = file("from=home-1")
    summary = simulate(config, out=tmp_path / "second", watcher=Nobody(), export=False)
    about = summary.started_from
    assert about is not None
    digest = json.loads((model / "manifest.json").read_text())["state_sha256"]
    assert (about.version, about.round, about.state_sha256) == ("home-1", 10, digest)
    first = params_in(registry.version_path("home-1") / "model")
    begin = params_in(tmp_path / "second" / "models" / "round-0000")
    assert all(np.array_equal(first[name], begin[name]) for name in first)

    shutil.rmtree(tmp_path / "registry")
    shutil.rmtree(source)
    again = simulate(
        file("from=home-1", "federation.rounds=5"), out=tmp_path / "second", watcher=Nobody(), resume=True
    )
    assert (again.outcome, again.rounds, again.started_from) == ("finished", 5, about)
    entered = describe_run(tmp_path / "second")
    # Three rounds before the last one, plus the model that the run started from.
    assert len(entered.parents) == 4
    assert entered.parents[-1] == digest
    assert entered.started_from == about
    enter_run(registry, tmp_path / "second", name="home-2")
    card = (registry.version_path("home-2") / "README.md").read_text()
    assert f"its run started from home-1 (run run-1, round 10), `{digest}`" in card
    report = (tmp_path / "second" / "report.md").read_text()
    assert "home-1 (run run-1, round 10)" in report


def test_the_arrays_keep_the_networks_order(source: Path, tmp_path: Path) -> None:
    config = file(f"from={source}")
    coordinator = begun(config, tmp_path / "second", find_initial_model(config, []))
    own = begun(file(), tmp_path / "third")
    assert list(coordinator.model.state.params) == list(own.model.state.params)
    assert {name: array.dtype for name, array in coordinator.model.state.params.items()} == {
        name: array.dtype for name, array in own.model.state.params.items()
    }
    coordinator.storage.close()
    own.storage.close()
