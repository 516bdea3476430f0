"""What counts as a difference between a run folder's configuration and the one to go on with."""

from pathlib import Path

import pytest

from edge_server.config.differences import as_begun, differences
from edge_server.config.load import load_config
from edge_server.storage.run_folder import RunFolder


@pytest.mark.parametrize("began", ['["fill-with-global"]', '[{name="fill-with-global",normalised=false}]'])
def test_a_run_of_an_earlier_version_goes_on_without_options_that_its_recipe_got_later(
    tmp_path: Path, began: str
) -> None:
    now = load_config("attending")
    (fill,) = now.strategy.transforms
    assert fill.options.keys() == {"normalised", "decay"}
    before = load_config("attending", [f"strategy.transforms={began}"])
    (tmp_path / "federation.toml").write_text(before.to_toml())
    assert list(differences(tmp_path / "federation.toml", now)) == []
    assert as_begun(tmp_path / "federation.toml", now).to_toml() == before.to_toml()


def test_a_run_of_plain_steps_goes_on_without_the_sharp_steps_of_its_recipe(tmp_path: Path) -> None:
    before = load_config("attending", ["sam-radius=0"])
    (tmp_path / "federation.toml").write_text(before.to_toml())
    now = load_config("attending")
    assert now.training.sam_radius > 0
    assert list(differences(tmp_path / "federation.toml", now)) == []
    assert as_begun(tmp_path / "federation.toml", now).to_toml() == before.to_toml()
    (found,) = differences(tmp_path / "federation.toml", load_config("attending", ["sam-radius=0.5"]))
    assert found == ("training.sam-radius", None, 0.5)


def test_a_short_run_with_sharp_steps_goes_on_with_them(tmp_path: Path) -> None:
    before, now = (
        load_config("attending", ["rounds=1", "sam-passes=0"]),
        load_config("attending", ["rounds=1"]),
    )
    path = tmp_path / "federation.toml"
    path.write_text(before.to_toml())
    assert now.training.sam_passes > 0
    assert list(differences(path, now)) == []
    assert as_begun(path, now).to_toml() == before.to_toml()


def test_a_run_with_one_rate_for_all_widths_goes_on_with_it(tmp_path: Path) -> None:
    before, now = load_config("attending", ["rate-by-width=false"]), load_config("attending")
    path = tmp_path / "federation.toml"
    path.write_text(before.to_toml())
    assert now.training.rate_by_width
    assert list(differences(path, now)) == []
    assert as_begun(path, now).to_toml() == before.to_toml()


def test_a_run_goes_on_with_the_defaults_of_an_earlier_version(tmp_path: Path) -> None:
    before = load_config("fedavg", ['optimizer="sgd"', "learning-rate=0.01", "local-epochs=1"])
    path = tmp_path / "federation.toml"
    path.write_text(before.to_toml())
    now = load_config("fedavg")
    assert (now.training.optimizer, now.training.local_epochs) == ("adam", 3)
    assert list(differences(path, now)) == []
    assert as_begun(path, now).training == before.training
    stated = load_config("fedavg", ['optimizer="adam"', "local-epochs=1"])
    assert [key for key, _, _ in differences(path, stated)] == ["training.optimizer"]


def test_a_run_without_warm_up_goes_on_without_it(tmp_path: Path) -> None:
    words = ['training.optimizer="adam"']
    path = RunFolder.create(tmp_path / "run", load_config("attending", words)).path / "federation.toml"
    path.write_text(path.read_text().replace("warm-up-steps = 10\n", ""))
    now = load_config("attending", words)
    assert (now.training.warm_up_steps, load_config(str(path)).training.warm_up_steps) == (10, 0)
    assert list(differences(path, now)) == []
    assert as_begun(path, now).training.warm_up_steps == 0
    stated = load_config("attending", [*words, "warm-up-steps=3"])
    assert list(differences(path, stated)) == [("training.warm-up-steps", 0, 3)]


def test_a_run_goes_on_with_the_bounds_and_the_combiner_that_it_began_with(tmp_path: Path) -> None:
    began = '{name="krum",byzantine=0.2,keep=1}'
    words = [f"strategy.combiner={began}", "firewall.norm-factor=10", "firewall.norm-spread=10"]
    before, now = load_config("krum", words), load_config("krum")
    path = tmp_path / "federation.toml"
    path.write_text(before.to_toml())
    assert (now.firewall.norm_factor, now.strategy.combiner.options["keep"]) == (5, 0)
    assert list(differences(path, now)) == []
    assert as_begun(path, now).to_toml() == before.to_toml()
    stated = load_config("krum", ["firewall.norm-factor=5", 'strategy.combiner={name="krum",keep=2}'])
    assert [key for key, _, _ in differences(path, stated)] == ["firewall.norm-factor", "strategy.combiner"]


def test_a_run_with_the_decay_that_its_recipe_had_goes_on_with_it(tmp_path: Path) -> None:
    now, transform = (
        load_config("attending"),
        "strategy.transforms=[{name='fill-with-global',normalised=false",
    )
    before = load_config("attending", [f"{transform},decay=0.05}}]"])
    (tmp_path / "federation.toml").write_text(before.to_toml())
    assert before.strategy.transforms != now.strategy.transforms
    assert list(differences(tmp_path / "federation.toml", now)) == []
    assert as_begun(tmp_path / "federation.toml", now).to_toml() == before.to_toml()
    other = load_config("attending", [f"{transform},decay=0.3}}]"])
    assert [key for key, _, _ in differences(tmp_path / "federation.toml", other)] == ["strategy.transforms"]
    (tmp_path / "federation.toml").write_text(other.to_toml())
    assert [key for key, _, _ in differences(tmp_path / "federation.toml", now)] == ["strategy.transforms"]


def test_another_citation_of_the_same_recipe_is_no_difference(tmp_path: Path) -> None:
    now = load_config("attending")
    assert now.recipe is not None
    written = now.to_toml().replace(now.recipe.citation, "Another 1999")
    (tmp_path / "federation.toml").write_text(written)
    assert written != now.to_toml()
    assert list(differences(tmp_path / "federation.toml", now)) == []


def test_a_run_that_states_the_option_does_not_go_on_with_another_value(tmp_path: Path) -> None:
    stated = 'strategy.transforms=[{name="fill-with-global",normalised=true}]'
    (tmp_path / "federation.toml").write_text(load_config("attending", [stated]).to_toml())
    found = differences(tmp_path / "federation.toml", load_config("attending"))
    assert [key for key, _, _ in found] == ["strategy.transforms"]


def test_without_a_run_the_configuration_is_as_stated(tmp_path: Path) -> None:
    now = load_config("attending")
    assert as_begun(tmp_path / "federation.toml", now) == now


def test_other_options_and_other_transforms_are_differences(tmp_path: Path) -> None:
    now = load_config("attending-fedbuff")
    for transforms in (
        '["fill-with-global"]',
        '[{name="discount-staleness",exponent=0.7}, "fill-with-global"]',
    ):
        before = load_config("attending-fedbuff", [f"strategy.transforms={transforms}"])
        (tmp_path / "federation.toml").write_text(before.to_toml())
        assert [key for key, _, _ in differences(tmp_path / "federation.toml", now)] == [
            "strategy.transforms"
        ]
