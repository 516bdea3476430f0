"""The experiment file: its keys, its cells, and its errors."""

from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from edge_server.config.load import load_config
from edge_server.config.test_data import merge_tables
from edge_server.simulation.experiments.cells import RunSelection, make_plan
from edge_server.simulation.experiments.compare import checked_plan, named_experiment
from edge_server.simulation.experiments.experiment import experiment_names, load_experiment
from edge_server.simulation.experiments.sizes import mean_parameters
from schemas.errors import ConfigError
from tests.slow import mark_slow, slow

BASE = """
title = "two recipes"
seeds = [4, 5]
target-accuracies = [0.5]

[settings]
data = { source = "digits" }
model = { name = "mlp" }
clients = { num-clients = 3 }
federation = { rounds = 9 }

[[columns]]
label = "iid"
[[columns]]
label = "uneven"
target-accuracies = [0.6]
note = "two shards each"
settings.data = { partition = "shards", shards = 2 }

[[rows]]
label = "FedAvg"
recipe = "fedavg"
[[rows]]
label = "FedProx"
recipe = "fedprox"
settings.federation.rounds = 20
cells.uneven.clients.fraction = 0.5
paper.iid = { average = 91.13, rounds = { "0.5" = 423 } }

[scale.small]
seeds = [1]
settings.federation.rounds = 2
columns.uneven = { settings = { federation = { rounds = 3 } }, label = "uneven, small" }
"""


def written(path: Path, text: str = BASE) -> str:
    file = path / "experiment.toml"
    file.write_text(text)
    return str(file)


def plan_of(path: Path, scale: str = "full", text: str = BASE, **choice):
    return make_plan(load_experiment(written(path, text)), RunSelection(scale, **choice))


def test_there_is_a_cell_for_every_row_and_column(tmp_path):
    plan = plan_of(tmp_path)
    assert [(cell.row, cell.column) for cell in plan.cells] == [
        ("FedAvg", "iid"),
        ("FedAvg", "uneven"),
        ("FedProx", "iid"),
        ("FedProx", "uneven"),
    ]
    assert [run.folder for run in plan.runs][:2] == ["fedavg-iid-seed4", "fedavg-uneven-seed4"]
    assert len(plan.runs) == 8


def test_later_settings_override_earlier_ones(tmp_path):
    cells = {(cell.row, cell.column): cell.config(7) for cell in plan_of(tmp_path).cells}
    assert cells["FedAvg", "iid"].federation.rounds == 9
    assert cells["FedProx", "iid"].federation.rounds == 20
    assert cells["FedAvg", "uneven"].data.partition_spec == "shards(2)"
    assert cells["FedAvg", "uneven"].data.source == "digits"
    assert (cells["FedProx", "iid"].clients.fraction, cells["FedProx", "uneven"].clients.fraction) == (1, 0.5)
    assert cells["FedProx", "iid"].federation.seed == 7
    assert cells["FedProx", "iid"].strategy.objectives[0].name == "prox"


def test_a_scale_overrides_rows_and_columns(tmp_path):
    plan = plan_of(tmp_path, "small")
    rounds = {(cell.row, cell.column): cell.config().federation.rounds for cell in plan.cells}
    assert rounds == {
        ("FedAvg", "iid"): 2,
        ("FedAvg", "uneven, small"): 3,
        ("FedProx", "iid"): 2,
        ("FedProx", "uneven, small"): 3,
    }
    assert plan.seeds == (1,)


SEARCH = """
[scale.search]
seeds = [99]
[scale.search.rows.FedProx]
settings.training.learning-rate = 0.3
[scale.search.variants."rate 0.1"]
training.learning-rate = 0.1
[scale.search.variants."rate 0.2"]
training.learning-rate = 0.2
"""


def test_variants_of_a_scale_repeat_every_row_with_each(tmp_path):
    plan = plan_of(tmp_path, "search", text=BASE + SEARCH)
    rates = {cell.row: cell.config().training.learning_rate for cell in plan.cells}
    assert rates == {
        "FedAvg, rate 0.1": 0.1,
        "FedAvg, rate 0.2": 0.2,
        "FedProx, rate 0.1": 0.1,
        "FedProx, rate 0.2": 0.2,
    }
    assert (len(plan.runs), plan.seeds) == (8, (99,))
    chosen = plan_of(
        tmp_path, "search", BASE + SEARCH, only=("FedProx",), overrides=("training.learning-rate=0.4",)
    )
    assert [cell.config().training.learning_rate for cell in chosen.cells] == [0.4] * 4


def test_the_reference_of_a_league_with_variants_is_one_of_them(tmp_path):
    league = SEARCH.replace("seeds = [99]", 'kind = "league"\nreference = "FedAvg, rate 0.2"')
    assert plan_of(tmp_path, "search", text=BASE + league).experiment.reference == "FedAvg, rate 0.2"
    with pytest.raises(ConfigError, match=r"no row is called 'FedAvg, rate 0\.3'"):
        plan_of(tmp_path, "search", text=BASE + league.replace('rate 0.2"\n[', 'rate 0.3"\n['))


GRID = """
[[grid]]
mlp.model.name = "mlp"
cnn.model.name = "cnn"
[[grid]]
"rate 0.1" = { training.learning-rate = 0.1 }
"rate 0.2" = { training = { optimizer = "adam", learning-rate = 0.2 } }

[[rows]]
"""


def test_a_grid_makes_a_column_of_every_combination(tmp_path):
    start, _, rest = BASE.partition("[[columns]]")
    rows, _, _ = rest.partition("[[rows]]")[2].partition("cells.uneven")
    plan = plan_of(tmp_path, text=start + GRID + rows, only=("FedAvg",), columns=("cnn, rate 0.2",))
    assert len(plan.experiment.columns) == 4
    (cell,) = plan.cells
    config = cell.config()
    assert (config.model.name, config.training.optimizer, config.training.learning_rate) == (
        "cnn",
        "adam",
        0.2,
    )


def test_the_command_line_overrides_everything(tmp_path):
    plan = plan_of(tmp_path, "small", seeds=(8,), only=("FedProx",), overrides=("rounds=5",))
    assert {cell.row for cell in plan.cells} == {"FedProx"}
    assert {cell.config().federation.rounds for cell in plan.cells} == {5}
    assert plan.seeds == (8,)


def test_one_row_one_column_and_one_seed_are_one_run(tmp_path):
    plan = plan_of(tmp_path, only=("FedProx",), columns=("uneven",), seeds=(5,))
    assert [run.folder for run in plan.runs] == ["fedprox-uneven-seed5"]


def test_a_columns_own_targets_replace_the_default_ones(tmp_path):
    assert [cell.targets for cell in plan_of(tmp_path).cells] == [(0.5,), (0.6,), (0.5,), (0.6,)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [4, 5]", "sedes = [4, 5]", "unknown key 'sedes' (did you mean 'seeds'?)"),
        ('recipe = "fedprox"', 'recipe = "fedprx"', "did you mean 'fedprox'?"),
        ("settings.federation.rounds = 20", "settings.federation.runds = 20", "did you mean 'rounds'?"),
        ("paper.iid", "paper.iidd", "no column is called 'iidd' (did you mean 'iid'?)"),
        ('label = "FedProx"', 'label = "FedAvg"', "two rows have the same label"),
        ('label = "FedProx"', 'label = "fed avg"', None),
        ('label = "FedProx"', 'label = "FEDAVG"', "give their rows other labels"),
        ("[scale.small]", '[scale.small]\ndrop-rows = ["FedPro"]', "did you mean 'FedProx'?"),
    ],
)
def test_mistakes_are_reported_with_the_nearest_name(tmp_path, old, new, message):
    assert old in BASE
    if message is None:
        plan_of(tmp_path, text=BASE.replace(old, new))
        return
    with pytest.raises(ConfigError) as error:
        plan_of(tmp_path, text=BASE.replace(old, new))
    assert message in str(error.value)


def test_unknown_scales_rows_and_experiments_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"did you mean 'small'\?"):
        plan_of(tmp_path, "smal")
    with pytest.raises(ConfigError, match=r"did you mean 'FedProx'\?"):
        plan_of(tmp_path, only=("FedPrx",))
    with pytest.raises(ConfigError, match=r"--columns: no column is called 'idd'.*did you mean 'iid'\?"):
        plan_of(tmp_path, columns=("idd",))
    with pytest.raises(ConfigError, match=r"did you mean 'adafl-table-1-2'\?"):
        named_experiment(["adafl-table-12"])


def test_recipes_make_an_experiment():
    plan = checked_plan(
        named_experiment(["fedavg", "attending"]), RunSelection(overrides=("data.source=digits", "rounds=2"))
    )
    assert [cell.row for cell in plan.cells] == ["fedavg", "attending"]
    assert plan.cells[1].config().strategy.pruner.name == "attention"


def test_recipes_without_data_compare_on_that_of_a_simulation():
    assert (
        checked_plan(named_experiment(["fedavg"]), RunSelection()).cells[0].config().data.source == "digits"
    )
    with pytest.raises(ConfigError, match=r"data\.source"):
        checked_plan(named_experiment(["fedavg"]), RunSelection(overrides=("model.input-shape=[1,8,8]",)))


@pytest.mark.parametrize(
    ("recipe", "words"), [("fedavg", ()), ("nefl-norm", ()), ("fedavg", ("privacy.secure-aggregation=true",))]
)
def test_a_recipe_keeps_its_codecs(recipe, words):
    (cell,) = make_plan(named_experiment([recipe]), RunSelection(overrides=words)).cells
    simulated, compared = load_config(recipe, words).strategy, cell.config().strategy
    assert (compared.uplink, compared.downlink) == (simulated.uplink, simulated.downlink)


def test_an_experiment_that_counts_bytes_keeps_the_codecs_of_its_recipes():
    assert "strategy" not in load_experiment("blood-cells").settings


@pytest.mark.parametrize("name", sorted({*experiment_names()} - {"blood-cells"}))
def test_a_shipped_experiment_asks_for_float32(name):
    assert load_experiment(name).settings["strategy"] == {"uplink": [], "downlink": []}
    # No other part of the file states codecs.
    text = (resources.files("edge_server.simulation.experiments") / f"{name}.toml").read_text()
    assert (text.count("uplink"), text.count("downlink")) == (1, 1)


def test_a_seed_that_no_generator_takes_is_refused_before_the_first_run():
    with pytest.raises(ConfigError, match="seed"):
        make_plan(named_experiment(["fedavg"]), RunSelection(seeds=(1, 2**80)))


def test_a_sweep_has_a_row_for_each_combination():
    words = ("rounds=2", "learning-rate=0.01,0.1", "batch-size=8,16")
    plan = make_plan(named_experiment(["fedavg", "median"]), RunSelection(overrides=words))
    assert len(plan.cells) == 8
    cell = plan.cells[1]
    assert cell.row == "fedavg, learning-rate=0.01, batch-size=16"
    training = cell.config().training
    assert (training.learning_rate, training.batch_size, cell.config().federation.rounds) == (0.01, 16, 2)


def test_a_league_is_not_swept():
    with pytest.raises(ConfigError, match="kind 'league'"):
        make_plan(load_experiment("league"), RunSelection("quick", overrides=("learning-rate=0.01,0.1",)))


def test_a_column_without_its_data_is_left_out_with_a_note(tmp_path):
    column = f'settings.data = {{ source = "MNIST", data-root = "{tmp_path}" }}'
    text = BASE.replace('settings.data = { partition = "shards", shards = 2 }', column)
    plan = checked_plan(load_experiment(written(tmp_path, text)), RunSelection())
    assert {cell.column for cell in plan.cells} == {"iid"}
    assert any("uneven is left out: no MNIST below" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        (pytest.param if place == 0 else slow)(name, scale)
        for name in experiment_names()
        for place, scale in enumerate((*load_experiment(name).scale, "full"))
    ],
)
def test_every_shipped_experiment_is_valid(name, scale):
    plan = make_plan(load_experiment(name), RunSelection(scale))
    assert plan.experiment.reproduces
    for cell in plan.cells:
        if scale != "full" and cell.paper and "CIFAR" in cell.column:
            assert "for CIFAR" in cell.column


def test_the_papers_tables_and_our_own_comparisons_are_shipped():
    assert set(experiment_names()) == {
        "adafl-table-1-2",
        "adafl-table-3-4",
        "attending-figure-1",
        "attending-figure-4",
        "attending-figure-5",
        "attending-figure-6",
        "attending-figure-11",
        "attending-figure-12",
        "attending-table-2-3",
        "attending-table-4",
        "fedrad-table-1-2",
        "igfl-figure-2",
        "blood-cells",
        "pretrained",
        "igfl-table-1-2-3-5",
        "igfl-table-4",
        "league",
        "robust",
        "trainers",
    }


@mark_slow
def test_the_strategies_of_figure_11_obey_equation_9_and_prune_the_share_p_of_the_parameters():
    plan = make_plan(load_experiment("attending-figure-11"), RunSelection())
    labels = [cell.row for cell in plan.cells]
    assert [sum(label.startswith(f"p = {p},") for label in labels) for p in (0.1, 0.3, 0.5, 0.7)] == [5] * 4
    for cell in plan.cells:
        ratio, digits = float(cell.row[4:7]), cell.row[-3:]
        (stages,) = cell.config().tiers.ratios
        assert stages == {f"layer{n}.*": int(digit) / 10 for n, digit in enumerate(digits, start=1)}
        assert ratio == 0.1 or list(digits) == sorted(digits)
        stated = merge_tables(cell.table, {"model": {"input-shape": [3, 32, 32], "num-classes": 10}})
        left = mean_parameters(replace(cell, table=stated).config()) / 591_322
        # The farthest is 122: 35.7 % of the parameters go, for p = 0.3.
        assert abs(1 - ratio - left) < 0.06
