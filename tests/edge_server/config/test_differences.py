"""What counts as a difference between a run folder's configuration and the one to go on with."""

from pathlib import Path

import pytest

from edge_server.config.load import differences, load_config


def test_another_citation_of_the_same_recipe_is_no_difference(tmp_path: Path) -> None:
    now = load_config("attending")
    assert now.recipe is not None
    written = now.to_toml().replace(now.recipe.citation, "Another 1999")
    (tmp_path / "federation.toml").write_text(written)
    assert written != now.to_toml()
    assert list(differences(tmp_path / "federation.toml", now)) == []


@pytest.mark.parametrize(
    ("recipe", "words", "differ"),
    [
        ("fedavg", ["local-epochs=1"], [("training.local-epochs", 1, 3)]),
        ("fedavg", ["warm-up-steps=3"], [("training.warm-up-steps", 3, 10)]),
        ("attending", ["sam-passes=0"], [("training.sam-passes", None, 100)]),
        ("fedavg", ["firewall.norm-factor=10"], [("firewall.norm-factor", 10.0, 5.0)]),
    ],
)
def test_each_key_with_another_value_is_a_difference(
    recipe: str, words: list[str], differ: list[object], tmp_path: Path
) -> None:
    (tmp_path / "federation.toml").write_text(load_config(recipe, words).to_toml())
    assert list(differences(tmp_path / "federation.toml", load_config(recipe))) == differ


@pytest.mark.parametrize(
    "transforms",
    [
        '["fill-with-global"]',
        '[{name="fill-with-global",normalised=true}]',
        '[{name="discount-staleness",exponent=0.7}, "fill-with-global"]',
    ],
)
def test_other_options_and_other_transforms_are_differences(transforms: str, tmp_path: Path) -> None:
    before = load_config("attending-fedbuff", [f"strategy.transforms={transforms}"])
    (tmp_path / "federation.toml").write_text(before.to_toml())
    found = differences(tmp_path / "federation.toml", load_config("attending-fedbuff"))
    assert [key for key, _, _ in found] == ["strategy.transforms"]
