"""`check` rehearses a federation file: the network, a training step of two tiers, and their updates."""

import json
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.said_once import say_once
from edge_client.inference.export.metadata import ExportRefused
from edge_client.pruning.channel_graph.ledger import Stop
from edge_server.cli.main import main
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.global_model import GlobalModel
from edge_server.coordinator.network_check import untraced_notice
from edge_server.simulation import rehearsal
from edge_server.simulation.rehearsal import Rehearsed, check_run
from edge_server.simulation.simulator import simulate
from edge_server.strategy.pruning.pruners import Attention, Cut
from schemas.errors import ConfigError
from schemas.strategy import PersonalPruning
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.edge_server.own_networks import NAME
from tests.other_networks import NAME as OTHERS

DATA = f"data.source=python:{NAME}:pictures"


DRAW = rehearsal.draw_networks


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network is drawn at the end of a rehearsal, which takes seconds."""
    monkeypatch.setattr(rehearsal, "draw_networks", lambda *_: None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SubModelSpec]:
    """The sub-models whose graphs are asked for."""
    specs: list[SubModelSpec] = []

    def draw(_: GlobalModel, params: object, spec: SubModelSpec) -> bytes:
        specs.append(spec)
        return b"graph"

    monkeypatch.setattr(rehearsal, "draw_networks", DRAW)
    monkeypatch.setattr(GlobalModel, "draw", draw)
    return specs


def file(recipe: str, network: str, *words: str) -> Config:
    return load_config(recipe, [DATA, f"model.name={NAME}:{network}", *words])


def tried(recipe: str, network: str, *words: str) -> Rehearsed:
    found = check_run(file(recipe, network, *words), "home.toml")
    assert found is not None
    return found


WRONG = {
    "nobody chosen": (
        ('simulation.labels=["site=barn"]', "clients.where=site=barm"),
        "[clients] where = 'site=barm' chooses none of the virtual devices",
    ),
    "no module": (("model.name=no_such_module:net",), "model 'no_such_module:net': there is no module 'no_"),
    "no factory": ((f"model.name={NAME}:lineer",), "has no function 'lineer' (did you mean 'linear'?)"),
    "one output": ((f"model.name={NAME}:one_output",), "returns (2, 1) for 2 examples and 3 classes: return"),
    "two outputs": (
        (f"model.name={NAME}:pair",),
        "[model] name: 'tests.edge_server.own_networks:pair' returns tup",
    ),
    "other inputs": (
        (f"model.name={NAME}:wrong_inputs",),
        "[model] name: Sequential cannot be traced for inputs of shape (1, 4, 4)",
    ),
    "no training": ((f"model.name={NAME}:only_served",), "a training step fails: made for serving alone"),
    "nothing trained": (
        (f"model.name={NAME}:frozen",),
        "frozen' is frozen, so there is nothing to train: lea",
    ),
    "no weights": (
        (f"model.name={NAME}:empty",),
        "empty' has no parameters, so there is nothing to train: g",
    ),
    "no gradient": (
        (f"model.name={NAME}:detached",),
        "gives outputs without a gradient, so there is nothing",
    ),
    "wide weights": (
        (f"model.name={NAME}:double",),
        "weights are float64, inputs are float32: end its factory",
    ),
    "one example": ((f"model.name={NAME}:normed", "batch-size=1"), "batch-size 1 cannot train a model with"),
    "too few classes": (("num-classes=2",), "[model] num-classes: 2, but [data] source has 3 classes: leave"),
    "another shape": (("model.input-shape=[3,4,4]",), "[model] input-shape: (3, 4, 4), but the examples of"),
}


@pytest.mark.parametrize("what", WRONG)
def test_check_reports_problems_that_would_end_the_run(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = WRONG[what]
    network = [] if any(word.startswith("model.name") for word in words) else [f"model.name={NAME}:hidden"]
    assert main(["check", "fedavg", DATA, *network, *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.startswith("edge-server: fedavg: ")
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_a_missing_factory_is_reported_even_if_the_data_shape_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "fedavg", f"model.name={NAME}:nowhere"]) == 2
    assert "fedavg: [model] name: " in capsys.readouterr().err
    assert main(["check", "fedavg", f"model.name={NAME}:linear"]) == 0
    assert "# The network was not tried: no [data] source" in capsys.readouterr().out


@pytest.mark.parametrize(
    "recipe", ["scaffold", "fedmix", "fedgh", "fednova", "attending-igfl", "fedp3", "hermes", "krum"]
)
def test_a_recipe_is_rehearsed_with_every_group_that_it_sends(recipe: str) -> None:
    assert tried(recipe, "hidden").notices == ()


def test_a_recipe_incompatible_with_the_network_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"home.toml: \[model\] name: network Sequential has no header"):
        tried("fedgh", "scaled")


def test_without_data_the_stated_shape_is_rehearsed_on_noise() -> None:
    words = ["model.input-shape=[2,3]", "num-classes=4", f"model.name={NAME}:hidden"]
    found = check_run(load_config("attending", words), "home.toml")
    # (6 + 1) * 10 + (10 + 1) * 4 parameters; pruned by 70% to 3 of 10 channels: (6 + 1) * 3 + (3 + 1) * 4.
    assert found is not None
    assert (found.parameters[5], found.parameters[1]) == (114, 37)


@pytest.mark.parametrize(("side", "count"), [(32, 16), (147, 16), (320, 3), (2000, 2)])
def test_few_pictures_are_rehearsed_where_they_are_large(side: int, count: int) -> None:
    config = load_config("attending", ["batch-size=64"])
    spec = ModelSpec(name="cnn", input_shape=(3, side, side), num_classes=2)
    assert len(rehearsal._handful(config, spec, None)) == count


def test_noise_becomes_inputs_as_the_file_states_it() -> None:
    words = ["data.mean=[0.5]", "data.std=[0.25]", "data.crop=0.5", 'data.classes=["a","b"]']
    config = load_config("fedavg", ["model.name=mlp", "model.input-shape=[3,6,6]", *words])
    rehearsed = check_run(config, "home.toml")
    assert rehearsed is not None
    assert rehearsed.notices[0].startswith("the network sees the middle 50 % of a picture's side as 3x6x6")


@pytest.mark.parametrize(
    "recipe", ["attending", "attending-l1", "attending-fedbuff", "heterofl", "fedp3", "hermes"]
)
def test_without_prunable_channels_all_tiers_train_the_full_model_with_a_notice(recipe: str) -> None:
    found = tried(recipe, "linear")
    assert len(set(found.parameters.values())) == 1
    (notice,) = found.notices
    assert notice.endswith(
        ":linear' has no channels that can be pruned: devices of every tier train the full model"
    )


@pytest.mark.parametrize(
    ("network", "operation", "remedy"),
    [
        ("recurrent", "nn.GRU 'gru'", "'tcn' is a network for series that is cut"),
        ("rolled", "roll()", "put the width into linear layers and convolutions around it"),
        ("numbered", "view()", "give the number of channels or heads as -1, since a tier has fewer"),
    ],
)
def test_channels_that_cannot_be_traced_are_named_by_their_operation_with_a_remedy(
    network: str, operation: str, remedy: str
) -> None:
    notice = tried("heterofl", network).notices[-1]
    assert notice == (
        f"'{NAME}:{network}' keeps all channels at {operation} on every tier, because they cannot be traced "
        f"there: {remedy}"
    )


def test_the_remedy_for_a_librarys_network_is_the_table_of_networks() -> None:
    config = load_config("heterofl", ["data.source=digits", "model.name=timm:vit_tiny_patch16_224"])
    notice = untraced_notice(config, [Stop("reshape"), Stop("cat")])
    assert notice is not None
    assert "at reshape(), cat() on every tier" in notice
    assert notice.endswith("which networks of torchvision and timm are cut as a whole (guide: data)")


@pytest.mark.parametrize("network", ["linear", "recurrent"])
def test_there_is_no_notice_if_no_tier_prunes(network: str) -> None:
    assert tried("fedavg", network).notices == ()


def test_a_learned_ratio_is_refused_if_there_is_nothing_to_prune() -> None:
    with pytest.raises(
        ConfigError, match=r"\[strategy\] ratio: 'bandit' learns how much to prune, and '.*lin"
    ):
        tried("fedmp", "linear")


def test_an_update_that_the_server_would_refuse_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # An earlier fault of the pruner: it requested scores of no layer, so every update was refused.
    faulty = Cut(SubModelSpec(), PersonalPruning(ratios={}))
    monkeypatch.setattr(Attention, "cut", lambda *_: faulty)
    with pytest.raises(ConfigError, match=r"its update would be refused \(wrong-shape\): expected groups"):
        tried("attending", "linear")


def test_check_prints_the_rehearsed_network_and_each_tiers_size(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "attending", DATA, f"model.name={NAME}:hidden"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert f"# '{NAME}:hidden' for 1x4x4 and 3 classes: two rounds rehearsed.\n" in shown.out
    assert "# tier 1, 70% pruned: 63 parameters\n" in shown.out
    assert "# tier 5, 0% pruned: 203 parameters\n" in shown.out
    assert main([*words, "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["model"]["name"] == f"{NAME}:hidden"
    assert "edge-server: tier 5, 0% pruned: 203 parameters\n" in shown.err


def test_a_simulation_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    config = file("fedavg", "one_output", "num-clients=2")
    with pytest.raises(ConfigError, match="one score per class"):
        simulate(config, out=tmp_path / "run", watcher=Nobody())
    assert not (tmp_path / "run").exists()


def test_a_run_that_cannot_start_reports_why_and_its_folder_may_be_reused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "fedavg", DATA, "--broker", "embedded", "--out", str(tmp_path / "run")]
    assert main([*words, f"model.name={NAME}:one_output"]) == 2
    assert "return one score per class" in capsys.readouterr().err
    assert main([*words, f"model.name={NAME}:pair"]) == 2
    assert "returns tuple" in capsys.readouterr().err


class Nobody:
    def show(self, snapshot: object) -> None: ...


def test_a_step_that_cannot_be_drawn_is_refused_for_devices_without_torch() -> None:
    assert tried("fedavg", "noisy").parameters
    with pytest.raises(ConfigError) as refused:
        tried("fedavg", "noisy", "simulation.trainer=onnx")
    message = str(refused.value)
    assert message.startswith("home.toml: [simulation] trainer: the device weakest-onnx cannot train")
    assert "draws random numbers" in message
    assert message.endswith('set trainer = "torch"')


def test_a_rehearsal_without_torch_trains_with_step_graphs() -> None:
    assert tried("fedavg", "hidden", "simulation.trainer=onnx").parameters


@pytest.mark.parametrize(
    ("recipe", "words", "last"),
    [
        ("attending", [], "the last round"),
        ("heterofl", [], "the last round"),
        ("attending", ["federation.when=new-data"], "each opening's last round"),
    ],
)
def test_a_notice_says_when_statistics_of_batch_normalisation_are_measured(
    recipe: str, words: list[str], last: str
) -> None:
    (notice,) = tried(recipe, "normed", *words).notices
    assert notice.startswith(f"'{NAME}:normed' has batch normalisation, and {last} measures its statistics")


def test_there_is_no_such_notice_where_statistics_are_averaged() -> None:
    assert tried("attending-common", "normed").notices == ()


def test_a_network_of_ones_own_is_drawn_for_every_tier(
    asked: list[SubModelSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", "heterofl", DATA, "tiers.ratios=[0.5,0.0,0.0]"]
    assert main([*words, f"model.name={NAME}:hidden"]) == 0
    assert capsys.readouterr().err == (
        "edge-server: drawing the network as ONNX, which may take half a minute\n"
    )
    assert [spec.kept for spec in asked] == [{"1": 5}, {}]
    asked.clear()
    assert main([*words, "model.name=mlp"]) == 0
    assert (asked, capsys.readouterr().err) == ([], "")


def test_a_network_that_cannot_become_onnx_is_refused_with_the_whole_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> bytes:
        raise ExportRefused("torch cannot export Uneven: " + "a long reason, " * 50)

    monkeypatch.setattr(rehearsal, "draw_networks", DRAW)
    monkeypatch.setattr(GlobalModel, "draw", refused)
    with pytest.raises(ConfigError) as error:
        tried("fedavg", "hidden")
    assert str(error.value) == (
        f"home.toml: [model] name: '{NAME}:hidden' cannot become an ONNX file, which devices and tiers get: "
        "torch cannot export Uneven: " + "a long reason, " * 50
    )


REFUSED = {
    "Squeezed": "returns (3,) for one example and 3 classes: return one score per class and example, a "
    "tensor [batch, num_classes]; squeeze() loses the axis of a single example: use flatten(1)",
    "Paired": "fails with one example: ",
    "Attribute": "'order' is drawn at random when the network is built",
    "Shared": "the same step, taken twice, gives two results",
    "Unseeded": "the same step, taken twice, gives two results",
    "old_weight_norm": "use torch.nn.utils.parametrizations.weight_norm",
}


@pytest.mark.parametrize("network", REFUSED)
def test_a_network_that_would_do_otherwise_in_the_run_is_refused(network: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_run(load_config("fedavg", [DATA, f"model.name={OTHERS}:{network}"]), "home.toml")
    assert REFUSED[network] in str(error.value)
    assert str(error.value).startswith("home.toml: ")


@pytest.mark.parametrize(
    ("network", "recipe"),
    [
        *(("Ordered", recipe) for recipe in ("attending", "scaffold", "fedp3", "ditto", "heterofl")),
        *((network, "attending") for network in ("Counting", "Viewed", "lazy", "weight_norm")),
    ],
)
def test_networks_as_others_write_them_are_right(network: str, recipe: str) -> None:
    words = [DATA, f"model.name={OTHERS}:{network}", "tiers.ratios=[0.5, 0.0]"]
    assert check_run(load_config(recipe, words), "home.toml") is not None


def test_weights_that_a_step_does_not_change_are_no_replayed_update() -> None:
    with pytest.raises(ConfigError, match=r"the step changes nothing, .* raise \[training\] learning-rate"):
        tried("fedgh", "hidden", "training.learning-rate=1e-30")


def test_check_gives_the_notes_of_a_source_that_a_run_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say_once.cache_clear()
    np.savez(tmp_path / "a.npz", images=np.random.default_rng(0).random((12, 8, 8)), labels=[0, 2, 0] * 4)
    words = [f"data.source=npz:{tmp_path / 'a.npz'}", f"model.name={NAME}:hidden"]
    assert main(["check", "fedavg", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("examples of 8x8 are taken for grey pictures; for signals" in line for line in lines)
    assert sum("[data] source: no example has a label of '1' (1)" in line for line in lines) == 1
    assert all(line.startswith("# ") for line in lines[: lines.index("")])


def test_a_server_without_data_says_that_nothing_scales_rows() -> None:
    def notices(*words: str) -> tuple[str, ...]:
        config = load_config("fedavg", [f"model.name={NAME}:hidden", "num-classes=2", *words])
        found = check_run(config, "home.toml")
        assert found is not None
        return found.notices

    (notice,) = notices("model.input-shape=[4]")
    assert 'inputs are divided by 255, as those of pictures: state [data] scaling = "federated"' in notice
    for words in (["data.scaling=federated"], ["data.statistics={mean=[1],std=[1]}"]):
        assert notices("model.input-shape=[4]", *words) == ()
    assert notices("model.input-shape=[1,4,4]") == ()
