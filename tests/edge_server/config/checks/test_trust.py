"""The trust of components in their devices is listed in data, and shown by the CLI and the README."""

from pathlib import Path

from edge_server.cli.main import main
from edge_server.config.checks.trust import TRUSTS, trusted_components, warnings
from edge_server.config.load import load_config
from edge_server.config.recipe_files import recipe_names
from edge_server.strategy.aggregation.combiners import IGNORES_WEIGHTS

README = Path(__file__).parents[4] / "edge_server" / "coordinator" / "validation" / "README.md"


def test_a_strict_firewall_warns_of_a_recipes_trust_in_devices():
    lines = warnings(load_config("scaffold", ["firewall.strict=true"]))
    assert [line.split(":")[0] for line in lines] == ["[strategy] combiner", "[strategy] groups"]
    assert "stays in them" in lines[1]
    assert warnings(load_config("scaffold")) == []


def test_recipes_with_a_robust_combiner_do_not_trust_weights():
    for name in recipe_names():
        spec = load_config(name).strategy
        concepts = {concept for concept, _, _ in trusted_components(spec)}
        assert ("combiner" in concepts) is (spec.combiner.name not in IGNORES_WEIGHTS)
        if spec.combiner.name in IGNORES_WEIGHTS:
            assert "weighting" not in concepts


def test_the_readme_lists_every_trusting_component_in_the_same_words():
    text = README.read_text()
    for concept in TRUSTS:
        for name, words in TRUSTS[concept].items():
            line = next(line for line in text.splitlines() if f"`{name}`" in line and line.startswith("| "))
            assert words in line


def test_check_and_recipes_show_the_trust_in_devices(capsys):
    words = ["data.source=digits", "model.name=mlp", "firewall.strict=true"]
    assert main(["check", "fedavg", *words]) == 0
    assert "'mean' takes its devices on trust: an update within bounds" in capsys.readouterr().out
    assert main(["recipes"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["scaffold"].rstrip().endswith("mean, control")
    assert rows["median"].rstrip().endswith("-")
