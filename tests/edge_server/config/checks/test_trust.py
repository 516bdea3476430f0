"""Components declare their trust in devices; the command line and the reference show it."""

from deploy.docs.generator.components import components_page
from edge_server.cli.main import main
from edge_server.config.checks.advice import trusted_components, warnings
from edge_server.config.load import load_config, recipe_names
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.weighting.registry import WEIGHTINGS


def test_a_strict_firewall_warns_of_a_recipes_trust_in_devices():
    lines = warnings(load_config("scaffold", ["firewall.strict=true"]))
    assert [line.split(":")[0] for line in lines] == ["[strategy] combiner", "[strategy] groups"]
    assert "stays in them" in lines[1]
    assert warnings(load_config("scaffold")) == []


def test_recipes_with_a_robust_combiner_do_not_trust_weights():
    for name in recipe_names():
        spec = load_config(name).strategy
        concepts = {concept for concept, _, _ in trusted_components(spec)}
        takes_weights = COMBINERS.traits(spec.combiner.name).takes_weights
        assert ("combiner" in concepts) is takes_weights
        if not takes_weights:
            assert "weighting" not in concepts


def test_the_reference_lists_every_trusting_component_in_the_same_words():
    rows = components_page().splitlines()
    for registry in (WEIGHTINGS, COMBINERS, GROUPS):
        trusting = registry.having(lambda traits: traits.trusts)
        assert trusting
        for name in trusting:
            assert any(
                row.startswith(f"| `{name}` |") and registry.traits(name).trusts in row for row in rows
            )


def test_check_and_recipes_show_the_trust_in_devices(capsys):
    words = ["data.source=digits", "model.name=mlp", "firewall.strict=true"]
    assert main(["check", "fedavg", *words]) == 0
    assert "'mean' takes its devices on trust: an update within bounds" in capsys.readouterr().out
    assert main(["recipes"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["scaffold"].rstrip().endswith("mean, control")
    assert rows["median"].rstrip().endswith("-")
