"""The federation file: its meaning, and errors that name the file, the key and the remedy."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_server.config.config import Config
from edge_server.config.load import load_config, read_recipe, recipe_names
from edge_server.coordinator.round_rules import make_rules
from edge_server.strategy.components import make_strategy
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write `home.toml` into the working directory and return its name."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str) -> str:
        Path("home.toml").write_text(text)
        return "home.toml"

    return write_file


def complaint(source: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(source, overrides)
    return str(refused.value)


# --- recipes ---
@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_loads_with_its_name_summary_and_citation(name):
    config = load_config(name)
    assert config.recipe is not None
    assert config.recipe.name == name
    assert config.recipe.summary
    assert config.recipe.citation
    make_strategy(config.algorithm(), config.tiers.ratios)


def test_the_shipped_recipes_are_listed():
    assert {"attending", "fedavg"} <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_contains_only_sections_that_the_algorithm_fixes(name):
    fixed = {
        "recipe",
        "strategy",
        "tiers",
        "training",
        "federation",
        "clients",
        "data",
        "simulation",
        "privacy",
    }
    assert read_recipe(name).keys() <= fixed


def test_a_file_overrides_its_recipe_key_by_key_and_replaces_whole_components(write):
    text = 'recipe = "attending-lowest"\n[tiers]\nratios = [0.5, 0.0]\n[strategy]\npruner = "attention"\n'
    config = load_config(write(text))
    assert config.tiers.ratios == (0.5, 0.0)
    assert config.strategy.pruner == Component(name="attention")
    recipe = load_config("attending-lowest").strategy
    assert recipe.pruner == Component(name="attention", options={"first_round": "train", "keep": "lowest"})
    assert config.strategy.transforms == recipe.transforms
    assert config.recipe.name == "attending-lowest"


def test_a_file_with_the_name_of_a_recipe_takes_precedence(write):
    Path(write("[federation]\nrounds = 77\n")).rename("fedavg")
    assert load_config("fedavg").federation.rounds == 77


def test_an_empty_file_has_all_defaults(write):
    assert load_config(write("")) == Config().with_codecs()
    assert Config().tiers.ratios == (0.7, 0.5, 0.3, 0.1, 0.0)


def test_models_are_sent_as_fp16_unless_a_file_states_otherwise():
    def down(*words):
        return [component.name for component in load_config("fedavg", words).strategy.downlink]

    assert down() == ["fp16"]
    assert down("secure-aggregation=true") == ["fp16"]
    assert down("strategy.downlink=[]") == []
    assert down('strategy.downlink=["delta", "zstd"]') == ["delta", "zstd"]


# --- errors ---
def test_a_wrong_value_of_training_is_one_line() -> None:
    with pytest.raises(ConfigError) as wrong:
        load_config("fedavg", ["learning-rate=fast"])
    assert str(wrong.value).count("\n") == 0


UNKNOWN = {
    "section": ("federaton", "rounds = 3", "unknown key 'federaton' (did you mean 'federation'?)"),
    "key": ("federation", "round = 3", "round: unknown key 'round' (did you mean 'rounds'?)"),
    "key of the strategy": (
        "strategy",
        'prunner = "index"',
        "prunner: unknown key 'prunner' (did you mean 'pruner'?)",
    ),
    "component": ("strategy", 'pruner = "atention"', "unknown pruner 'atention' (did you mean 'attention'?)"),
    "component of a list": (
        "strategy",
        'transforms = ["fill-global"]',
        "unknown transform 'fill-global' (did you mean 'fill-with-global'?)",
    ),
    "option": (
        "strategy",
        'server-optimizer = { name = "sgd", learning-rat = 1.0 }',
        "server optimizer 'sgd' has no option 'learning-rat' (did you mean 'learning-rate'?)",
    ),
    "model": (
        "model",
        'name = "two-n"',
        "unknown model 'two-n' (did you mean 'two-nn'?); your own network is named "
        "package.module:factory, a library's torchvision:NAME or timm:NAME, and a detector on any "
        "of these detector:NAME",
    ),
    "partition": (
        "data",
        'partition = "dirichlett"',
        "unknown partition 'dirichlett' (did you mean 'dirichlet'?)",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_an_unknown_name_is_reported_with_its_file_and_the_nearest_name(write, what):
    section, line, message = UNKNOWN[what]
    assert complaint(write(f"[{section}]\n{line}\n")) == f"home.toml: [{section}] {message}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('recipe = "fedavgg"', "recipe: unknown recipe 'fedavgg' (did you mean 'fedavg'?)"),
        ("recipe = 3", "[recipe] input should be a valid dictionary"),
        ("federation = 3", "[federation] input should be a valid dictionary"),
    ],
)
def test_a_wrong_line_outside_of_any_section_is_reported_with_its_file(write, line, message):
    assert complaint(write(f"{line}\n")).startswith(f"home.toml: {message}")


def test_a_key_in_the_wrong_place_is_reported_with_its_section(write):
    message = complaint(write("rounds = 3\n"))
    assert message == "home.toml: 'rounds' stands outside of any section: it belongs in [federation]"
    message = complaint(write("[federation]\nnum-clients = 3\n"))
    assert message == "home.toml: 'num-clients' stands in [federation]: it belongs in [clients]"
    message = complaint(write('name = "home"\n'))
    assert message == "home.toml: 'name' stands outside of any section: it belongs in [federation] or [model]"


def test_an_unknown_key_outside_of_any_section_lists_the_sections(write):
    message = complaint(write("zzz = 3\n"))
    assert message.startswith(
        "home.toml: [zzz] unknown key 'zzz' (known: clients, data, federation, firewall, home-assistant, "
    )


@pytest.mark.parametrize(
    "text",
    ['[training]\noptimizer = "adamm"\n', '[strategy]\nobjectives = ["atentive"]\n'],
    ids=["optimizer", "objective"],
)
def test_an_unknown_component_of_local_training_is_reported_before_the_run(write, text):
    assert "did you mean" in complaint(write(text))


TYPES = {
    "a word for a number": (
        "federation",
        'rounds = "many"',
        "rounds: input should be a valid integer, unable to parse string as an integer, got 'many'",
    ),
    "half a round": ("federation", "rounds = 2.5", "rounds: input should be a valid integer, "),
    "a number for a name": ("federation", "name = 2", "name: input should be a valid string, got 2"),
    "a number for a component": ("strategy", "pruner = 3", "pruner: input should be a valid dictionary"),
    "a number for a list": (
        "tiers",
        "ratios = 0.5",
        'ratios: must be a list, as [0.5, 1] or ["a", "b"] (in a shell within single quotes), got',
    ),
    "a word for a list": ("strategy", 'transforms = "clip"', "transforms: must be a list, as [0.5, 1]"),
    "a word for an option": (
        "strategy",
        'server-optimizer = { name = "sgd", learning-rate = "fast" }',
        "server optimizer 'sgd': learning-rate: input should be a valid number",
    ),
    "a word that is not a choice": (
        "federation",
        'deliver = "maybe"',
        "deliver: input should be 'trial', 'force' or 'none'",
    ),
}


UNIONS = {
    "cohort = 0": "[simulation] cohort: input should be greater than or equal to 1, got 0",
    "cohort = 2.5": "[simulation] cohort: input should be a valid integer or 'auto', got 2.5",
    'trainer = ["jax"]': "[simulation] trainer.0: input should be 'torch' or 'onnx', got 'jax'",
    "trainer = []": "[simulation] trainer: list should have at least 1 item, not 0",
}


@pytest.mark.parametrize("line", UNIONS)
def test_a_key_of_several_types_is_reported_once_without_names_of_types(write, line):
    assert complaint(write(f"[simulation]\n{line}\n")) == f"home.toml: {UNIONS[line]}"


def test_both_sides_of_a_size_are_checked_as_a_list(write):
    assert complaint(write("[data]\nresize = [8, 0]\n")) == (
        "home.toml: [data] resize.1: input should be greater than or equal to 1, got 0"
    )


@pytest.mark.parametrize("what", TYPES)
def test_a_value_of_the_wrong_type_is_reported_with_its_file_and_key(write, what):
    section, line, message = TYPES[what]
    assert complaint(write(f"[{section}]\n{line}\n")).startswith(f"home.toml: [{section}] {message}")


IMPOSSIBLE = {
    "fewer rounds than none": (
        "federation",
        "rounds = -1",
        "rounds: input should be greater than or equal to 0, got -1",
    ),
    "a negative seed": ("federation", "seed = -1", "seed: "),
    "a name that breaks topics": ("federation", 'name = "a/b"', "name: string should match pattern"),
    "no clients": ("clients", "fraction = 0.0", "fraction: input should be greater than 0, got 0.0"),
    "more than all clients": ("clients", "fraction = 1.5", "fraction: input should be less than or equal"),
    "a quorum that is not a number": ("clients", "quorum = nan", "quorum: input should be a finite number"),
    "an endless deadline": ("clients", "deadline-s = inf", "deadline-s: input should be a finite number"),
    "a deadline of zero": ("clients", "deadline-s = 0", "deadline-s: input should be greater than 0, got 0"),
    "momentum of 1": ("training", "momentum = 1.0", "momentum: input should be less than 1"),
    "no tiers": ("tiers", "ratios = []", "ratios: list should have at least 1 item"),
    "a tier without channels": (
        "tiers",
        "ratios = [0.5, 1.0]",
        "ratios.1: input should be less than 1, got 1.0",
    ),
    "images without height": ("model", "input-shape = [1, 0, 8]", "input-shape.1: input should be greater"),
    "a partition without its parameter": (
        "data",
        'partition = "dirichlet"',
        "partition 'dirichlet' is written dirichlet(alpha=...)",
    ),
    "an option out of its range": (
        "strategy",
        'pruner = { name = "attention", first-round = "never" }',
        "pruner 'attention': first-round is 'prune-first', 'train' or 'score-only', not 'never'",
    ),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_impossible_value_is_reported_with_its_file_and_key(write, what):
    section, line, message = IMPOSSIBLE[what]
    assert complaint(write(f"[{section}]\n{line}\n")).startswith(f"home.toml: [{section}] {message}")


def test_every_problem_has_its_own_line(write):
    message = complaint(
        write('[federation]\nrounds = -1\n[clients]\nfractoin = 0.5\n[tiers]\nratios = ["a", 2]\n')
    )
    assert [line.partition(":")[2].split()[0] for line in message.splitlines()] == [
        "[federation]",
        "[clients]",
        "[tiers]",
        "[tiers]",
    ]
    assert all(line.startswith("home.toml: ") for line in message.splitlines())


def test_an_invalid_federation_file_is_reported_in_one_line(write, tmp_path):
    source = write("[federation")
    assert complaint(source).startswith("home.toml: not valid TOML: ")
    Path("home.toml").write_bytes(b"\xff\xfe")
    assert complaint(source).startswith("home.toml: cannot be read: ")
    assert complaint(str(tmp_path)) == f"{tmp_path}: this is a folder: name a federation file, or a recipe"
    assert complaint("none.toml") == "none.toml: there is no such file or recipe"
    assert complaint("fedav") == "fedav: there is no such file or recipe (did you mean 'fedavg'?)"


# --- overrides ---
def test_a_key_of_only_one_section_needs_no_section(write):
    config = load_config(write("[federation]\nrounds = 5\n"), ["rounds=3", "num-clients=100", "ratios=[0.5]"])
    assert (config.federation.rounds, config.clients.num_clients, config.tiers.ratios) == (3, 100, (0.5,))


def test_a_key_may_be_named_with_its_section():
    config = load_config("fedavg", ["training.learning-rate=0.5", "model.name=mlp", "federation.name=home-2"])
    assert (config.training.learning_rate, config.model.name) == (0.5, "mlp")
    assert config.federation.name == "home-2"


def test_a_component_may_be_replaced_by_its_name_or_with_options():
    assert load_config("attending", ["strategy.pruner=index"]).strategy.pruner == Component(name="index")
    word = 'strategy.pruner={name="attention", first-round="score-only"}'
    assert load_config("attending", [word]).strategy.pruner.options == {"first_round": "score-only"}


def test_the_last_override_of_a_key_counts_and_others_stay():
    config = load_config("fedavg", ["rounds=3", "seed=5", "federation.rounds=4"])
    assert (config.federation.rounds, config.federation.seed) == (4, 5)


RESIZE = (
    "fedavg: [data] resize: input should be a valid integer or a list, as [0.5, 1] or "
    '["a", "b"] (in a shell within single quotes), got \'{}\''
)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("name=x", "'name' stands in several sections: federation.name, model.name"),
        ("roundss=3", "unknown key 'roundss' (did you mean 'rounds'?)"),
        ("learning_rate=0.1", "unknown key 'learning_rate' (did you mean 'learning-rate'?)"),
        ("rounds", "'rounds' is not key=value (for instance rounds=3 or training.learning-rate=0.1)"),
        ("=3", "'=3' is not key=value (for instance rounds=3 or training.learning-rate=0.1)"),
        (
            "federation.roundss=3",
            "fedavg: [federation] roundss: unknown key 'roundss' (did you mean 'rounds'?)",
        ),
        ("federatio.rounds=3", "fedavg: [federatio] unknown key 'federatio' (did you mean 'federation'?)"),
        (
            "rounds=many",
            "fedavg: [federation] rounds: input should be a valid integer,"
            " unable to parse string as an integer, got 'many'",
        ),
        ("resize=0x5", RESIZE.format("0x5")),
        ("resize=64x48", RESIZE.format("64x48")),
    ],
)
def test_a_wrong_override_is_reported_like_a_file(word, message):
    assert complaint("fedavg", word) == message


def test_a_key_with_underscores_is_reported_as_it_was_written(write):
    source = write("[training]\nlocal-epochs = 5\n")
    message = complaint(source, "training.local_epochs=3")
    assert message == (
        "home.toml: [training] local_epochs: unknown key 'local_epochs' (did you mean 'local-epochs'?)"
    )


# --- the resolved file ---
RICH = """
recipe = "attending-common"
[federation]
name = "home-1"
seed = 7
deliver = "none"
[clients]
start-clients = 3
fraction = 0.25
[model]
name = "my.package:net"
num-classes = 4
input-shape = [3, 32, 32]
[data]
source = 'npz:C:\\data "1".npz'
data-root = "/data sets"
partition = "dirichlet"
alpha = 0.1
[training]
optimizer = "adam"
learning-rate = 1e-5
[strategy]
fraction = { name = "constant", value = 0.5 }
local-epochs = { name = "constant", value = 3 }
objectives = [{ name = "prox", mu = 0.1 }]
server-optimizer = { name = "sgd", learning-rate = 0.5 }
"""


def test_a_list_option_is_written_as_a_list():
    component = Component(name="attentive", options={"layers": ("conv2", "linear1")})
    table = tomllib.loads(Config(strategy=StrategySpec(objectives=(component,))).to_toml())
    assert table["strategy"]["objectives"] == [{"name": "attentive", "layers": ["conv2", "linear1"]}]


@pytest.mark.parametrize("text", ["", RICH, 'recipe = "attending"\n', 'recipe = "fedavg"\n'])
def test_the_resolved_file_has_the_same_meaning(write, text):
    config = load_config(write(text))
    resolved = config.to_toml()
    assert load_config(write(resolved)) == config
    assert load_config(write(resolved)).to_toml() == resolved


@pytest.mark.parametrize(
    ("words", "optimizer", "rate"),
    [
        ((), "adam", 0.001),
        (("learning-rate=0.1",), "sgd", 0.1),
        (("momentum=0.9",), "sgd", 0.01),
        (('optimizer="sgd"',), "sgd", 0.01),
        (('optimizer="adamw"', "learning-rate=0.1"), "adamw", 0.1),
    ],
)
def test_a_rate_or_momentum_alone_is_that_of_sgd(words, optimizer, rate):
    training = load_config("fedavg", words).training
    assert (training.optimizer, training.learning_rate) == (optimizer, rate)


def test_the_resolved_file_contains_defaults_under_the_users_keys():
    table = tomllib.loads(load_config("attending-lowest").to_toml())
    assert table["clients"]["deadline-s"] == 600.0
    assert table["training"]["learning-rate"] == 0.001
    assert table["strategy"]["weighting"] == "examples"
    assert table["strategy"]["pruner"] == {"name": "attention", "first-round": "train", "keep": "lowest"}
    assert "_" not in "".join(key for section in table.values() for key in section)


@pytest.mark.parametrize("mode", ["trial", "force", "none"])
def test_the_delivery_mode_is_a_word(write, mode):
    config = load_config(write(f'[federation]\ndeliver = "{mode}"\n'))
    assert config.federation.deliver == mode
    assert load_config("fedavg", [f"deliver={mode}"]).federation.deliver == mode
    assert tomllib.loads(config.to_toml())["federation"]["deliver"] == mode
    assert make_rules(config).deliver == (mode != "none")
    assert load_config("fedavg").federation.deliver == "trial"


# --- the fraction of clients ---
@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_the_fraction_of_clients_is_passed_to_the_strategy(fraction):
    config = load_config("attending", [f"fraction={fraction}"])
    strategy = make_strategy(config.algorithm(), config.tiers.ratios)
    assert [strategy.fraction(number) for number in (1, 50)] == [fraction, fraction]


def test_a_schedule_of_the_strategy_overrides_the_fraction_of_clients(write):
    text = '[clients]\nfraction = 0.5\n[strategy]\nfraction = { name = "constant", value = 0.25 }\n'
    config = load_config(write(text))
    assert make_strategy(config.algorithm(), config.tiers.ratios).fraction(1) == 0.25
    # The user's own settings stay unchanged.
    assert load_config(write("[clients]\nfraction = 0.5\n")).strategy.fraction is None


def test_robust_bounds_apply_where_the_file_states_none() -> None:
    def bounds(*words: str) -> tuple[float, float, float]:
        firewall = load_config("fedavg", [f"firewall.{word}" for word in words]).firewall
        return firewall.norm_factor, firewall.norm_spread, firewall.leave_one_out

    assert bounds() == (5.0, 5.0, 0.35)
    assert bounds("robust=true") == (3.5, 3.5, 0.2)
    assert bounds("robust=true", "leave-one-out=0.3") == (3.5, 3.5, 0.3)


def test_problems_have_place_key_reason_and_remedy_as_fields(write):
    name = write('recipe = "fedavg"\n[clients]\nfraction = 2\nnum-client = 3\n')
    with pytest.raises(ConfigError) as refused:
        load_config(name)
    fraction, unknown = refused.value.fields()
    assert fraction == {
        "place": "home.toml",
        "key": "[clients] fraction",
        "reason": "input should be less than or equal to 1, got 2",
        "remedy": "",
    }
    assert unknown["key"] == "[clients] num-client"
    with pytest.raises(ConfigError) as refused:
        load_config("fedavg", ["privacy.mechanism=gaussian"])
    fields = refused.value.fields()
    assert str(refused.value).splitlines() == [": ".join(filter(None, each.values())) for each in fields]
    assert fields[0]["key"] == "[strategy] weighting"
    assert fields[0]["remedy"] == 'set weighting = "equal", or [privacy] mechanism = "none"'


def test_numbers_cut_nothing_where_every_tier_freezes_layers() -> None:
    frozen = ["training.train=last-1", 'tiers.ratios=[{ "conv2" = 0.5 }, 0.3, 0.0]']
    assert load_config("attending", frozen).tiers.ratios == ({"conv2": 0.5}, 0.0, 0.0)
    assert load_config("attending", ["training.train=head"]).tiers.ratios == (0.0,) * 5
    some = load_config("attending", ['tiers.train=["head", "all"]'])
    assert some.tiers.ratios == load_config("attending").tiers.ratios == (0.7, 0.5, 0.3, 0.1, 0.0)
