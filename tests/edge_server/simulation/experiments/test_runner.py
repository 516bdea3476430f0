"""Running a plan: finished runs stay, interrupted ones are resumed, failed ones are reported."""

import csv
import io
import json
from dataclasses import replace

import pytest

from edge_server.cli.commands import compare as command
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.experiments.cells import RunSelection
from edge_server.simulation.experiments.compare import checked_plan, named_experiment, run_comparison
from edge_server.simulation.experiments.progress import RoundLine, StatusLine
from edge_server.simulation.experiments.publish import publish
from edge_server.simulation.experiments.runner import run_all
from edge_server.storage.provenance import Provenance
from schemas.errors import ConfigError
from tests.edge_server.simulation.experiments.made_up import Quiet, Simulated

MADE = Provenance(
    command="edge-server compare <x>",
    date="today",
    commit="abc",
    cpu="cpu",
    cores=2,
    gpu=None,
    system="s",
    python="3",
    versions={},
)


def plan(*, seeds=(1, 2), overrides=("rounds=6",)):
    words = ("data.source=digits", "model.name=mlp", "num-clients=2", *overrides)
    experiment = named_experiment(["fedavg", "fedprox"])
    return checked_plan(experiment, RunSelection(seeds=seeds, overrides=words))


def test_every_cell_and_seed_runs_once(tmp_path):
    simulated, quiet = Simulated(), Quiet()
    outcome = run_all(plan(), tmp_path, simulate=simulated, progress=quiet)
    names = ["fedavg-result-seed1", "fedprox-result-seed1", "fedavg-result-seed2", "fedprox-result-seed2"]
    assert simulated.calls == [(name, False) for name in names]
    assert not outcome.interrupted
    assert len(outcome.done) == 4
    again = Simulated()
    assert len(run_all(plan(), tmp_path, simulate=again, progress=quiet).done) == 4
    assert again.calls == []
    assert quiet.results[-1] == "fedprox-result-seed2: 60.00%, finished earlier"


def test_an_interrupted_run_is_resumed(tmp_path):
    stopped = Simulated(stop_in="fedprox-result-seed1")
    outcome = run_all(plan(), tmp_path, simulate=stopped, progress=Quiet())
    assert outcome.interrupted
    assert [ended.run.folder for ended in outcome.done] == ["fedavg-result-seed1"]
    after = Simulated()
    assert not run_all(plan(), tmp_path, simulate=after, progress=Quiet()).interrupted
    assert after.calls[0] == ("fedprox-result-seed1", True)
    assert len(after.calls) == 3


def test_a_failed_run_is_reported_and_the_others_continue(tmp_path):
    simulated = Simulated(fail_in="fedavg-result-seed1")
    findings = run_comparison(plan(), tmp_path, simulate=simulated, progress=Quiet())
    assert len(simulated.calls) == 4
    assert len(findings.failures) == 1
    assert "fedavg" in findings.failures[0]
    # One seed of two is left: no deviation, and the note names the other.
    fedavg = findings.records[0]
    assert (fedavg["seeds"], fedavg["average_std"]) == (1, None)
    assert "seed 1" in fedavg["note"]


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    run_all(plan(), tmp_path, simulate=Simulated(), progress=Quiet())
    untouched = Simulated()
    with pytest.raises(ConfigError, match="other settings"):
        run_all(plan(overrides=("rounds=7",)), tmp_path, simulate=untouched, progress=Quiet())
    assert untouched.calls == []
    more = plan(overrides=("rounds=6", "simulation.workers=2"))
    assert len(run_all(more, tmp_path, simulate=untouched, progress=Quiet()).done) == 4


def test_the_table_has_mean_deviation_and_the_papers_number(tmp_path):
    # Accuracy 0.1 n + 0.02 seed over 6 rounds: averages 0.37 and 0.39, so 38.00 with deviation 1.41.
    simulated = Simulated(lambda config, number: 0.1 * number + 0.02 * config.federation.seed)
    made = plan()
    paper = named_experiment(["adafl-table-1-2"]).rows[0].paper["MNIST"]
    cells = (replace(made.cells[0], paper=paper, targets=(0.4, 0.9)), made.cells[1])
    findings = run_comparison(replace(made, cells=cells), tmp_path, simulate=simulated, progress=Quiet())
    (table,) = findings.tables
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["average of last 10 (%)"] == "38.00 ± 1.41"
    assert row["paper"] == "91.13"
    # The mean of rounds 2 to 6 is 0.4 + 0.02 seed: above 0.4 in round 6, after 12 updates; never above 0.9.
    assert (row["rounds to 40%"], row["cost to 40% (updates)"]) == ("6", "12")
    assert (row["rounds to 90%"], row["paper, 90%"]) == ("not reached", "423 (6690)")
    assert findings.records[0]["round_to_0.4"] == 6


def test_a_comparison_writes_its_files(tmp_path):
    made = plan()
    findings = run_comparison(made, tmp_path, simulate=Simulated(), progress=Quiet())
    publish(made, findings, tmp_path, MADE)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["made"]["commit"] == "abc"
    assert [cell["row"] for cell in results["cells"]] == ["fedavg", "fedprox"]
    assert len(results["cells"][0]["runs"]) == 2
    with (tmp_path / "curves.csv").open() as file:
        curves = list(csv.DictReader(file))
    assert len(curves) == 12
    assert (curves[0]["row"], curves[0]["round"], curves[0]["mean"]) == ("fedavg", "1", "0.10000")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "compare.html").read_text()
    assert "fedprox ends at 60.00%" in page
    assert "edge-server compare &lt;x&gt;" in page
    assert "strategy.objectives" in page
    text = (tmp_path / "compare.md").read_text()
    # Accuracies of rounds 1 to 6 are 0.1 to 0.6.
    assert "| fedprox | 10.00% | 60.00% | 10.00% | 60.00% | ▁▂▄▅▇█ |" in text
    assert "```\nedge-server compare <x>\n```" in text
    assert "| fedavg |" in (tmp_path / "table.md").read_text()


def test_the_page_says_when_the_comparison_began_and_shows_a_sweep(tmp_path):
    made = plan(overrides=("rounds=2", "learning-rate=0.01,0.1"), seeds=(1,))
    findings = run_comparison(made, tmp_path, simulate=Simulated(), progress=Quiet())
    first = MADE.model_copy(update={"date": "2026-01-01 10:00 UTC"})
    (tmp_path / "runs" / made.runs[0].folder / "made.json").write_text(first.model_dump_json())
    publish(made, findings, tmp_path, MADE.model_copy(update={"date": "2026-01-02 10:00 UTC"}))
    text, page = (tmp_path / "compare.md").read_text(), (tmp_path / "compare.html").read_text()
    assert "| begun | 2026-01-01 10:00 UTC |" in text
    assert "| codecs | up int8, zstd; down fp16 |" in text
    # Accuracies 0.1 and 0.2 of two rounds.
    assert "<title>fedprox, 0.1: 15.00%</title>" in page
    assert "The HTML page draws this: Test accuracy by setting, result" in text


def test_a_file_gets_the_round_and_the_time_left_once_a_minute():
    now, stream = [0.0], io.StringIO()
    line = RoundLine("[1/2] fedavg, seed 1", StatusLine(stream, clock=lambda: now[0]))
    for number in range(1, 131):
        now[0] = float(number)
        line.show(Snapshot("a", "a-1", "training", number, 200, elapsed_s=now[0], left_s=120.0))
    assert stream.getvalue().splitlines() == [
        f"[1/2] fedavg, seed 1: round {number} of 200, about 2 min 00 s left in this run"
        for number in (60, 120)
    ]


def test_seeds_are_read_from_the_command_line():
    assert command.parse_seeds("1,2") == (1, 2)
    for wrong in ("1,1", "-1"):
        with pytest.raises(Exception, match="different seeds"):
            command.parse_seeds(wrong)
