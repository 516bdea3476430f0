"""What recipes take on trust of their devices is data, and said wherever somebody looks for it."""

from pathlib import Path

from edge_server.cli.main import main
from edge_server.config.checks.trust import TRUSTS, trusted_components, warnings
from edge_server.config.load import load_config
from edge_server.config.recipe_files import recipe_names
from edge_server.strategy.aggregation.combiners import IGNORES_WEIGHTS

README = Path(__file__).parents[4] / "edge_server" / "coordinator" / "validation" / "README.md"


def test_a_strict_firewall_says_what_a_recipe_takes_on_trust():
    lines = warnings(load_config("scaffold", ["firewall.strict=true"]))
    assert [line.split(":")[0] for line in lines] == ["[strategy] combiner", "[strategy] groups"]
    assert "stays in them" in lines[1]
    assert warnings(load_config("scaffold")) == []


def test_every_recipe_with_a_robust_combiner_takes_no_weight_on_trust():
    for name in recipe_names():
        spec = load_config(name).strategy
        concepts = {concept for concept, _, _ in trusted_components(spec)}
        assert ("combiner" in concepts) is (spec.combiner.name not in IGNORES_WEIGHTS)
        if spec.combiner.name in IGNORES_WEIGHTS:
            assert "weighting" not in concepts


def test_the_readme_has_every_component_that_takes_something_on_trust_in_the_same_words():
    text = README.read_text()
    for concept in TRUSTS:
        for name, words in TRUSTS[concept].items():
            line = next(line for line in text.splitlines() if f"`{name}`" in line and line.startswith("| "))
            assert words in line


def test_check_and_recipes_say_it(capsys):
    words = ["data.source=digits", "model.name=mlp", "firewall.strict=true"]
    assert main(["check", "fedavg", *words]) == 0
    assert "'mean' takes its devices on trust: an update within bounds" in capsys.readouterr().out
    assert main(["recipes"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["scaffold"].rstrip().endswith("mean, control")
    assert rows["median"].rstrip().endswith("-")
