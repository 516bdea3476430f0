"""The committed results: one folder per shipped experiment, each with its provenance."""

import json
from importlib import resources
from pathlib import Path

import pytest

from edge_server.simulation.experiments.ended_runs import read_text

EXPERIMENTS = Path(str(resources.files("edge_server.simulation.experiments")))
RESULTS = Path(__file__).with_name("results")
NOT_RUN = {"attending-figure-11": "ResNet56 stays at chance in a run that a processor does in minutes"}
NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.toml") if path.stem not in NOT_RUN)


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_has_results_with_provenance(name: str) -> None:
    folder = RESULTS / name
    made = json.loads(read_text(folder / "results.json"))["made"]
    assert made["command"].startswith(f"edge-server compare {name} ")
    assert made["commit"]
    assert made["cpu"]
    assert made["command"] in (folder / "table.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_results_contain_no_paths_of_the_machine_that_made_them(name: str) -> None:
    for path in (RESULTS / name).glob("*"):
        if path.suffix != ".png":
            assert " /" not in read_text(path).replace(" / ", " ")


def test_committed_figures_are_packed() -> None:
    plain = [path for name in ("results.json", "curves.csv") for path in RESULTS.glob(f"*/{name}")]
    assert plain == [], "run `xz -9 results.json curves.csv` in the folder"


def test_results_are_linked_from_the_readme() -> None:
    listed = (RESULTS / "README.md").read_text()
    assert all(f"({name}/table.md)" in listed for name in NAMES)


def test_the_readme_names_what_was_not_run() -> None:
    listed = (RESULTS / "README.md").read_text()
    assert all(f"| {name} | not run: " in listed for name in NOT_RUN)
    assert not any((RESULTS / name).exists() for name in NOT_RUN)
