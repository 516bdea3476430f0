"""Ended runs travel in one file to other machines and later comparisons."""

import json
import lzma
from pathlib import Path

import pytest

from edge_server.simulation.experiments.cells import Plan, kept_run
from edge_server.simulation.experiments.ended_runs import NAME, pack_runs, take_runs
from edge_server.simulation.experiments.runner import run_all
from schemas.errors import ConfigError
from tests.edge_server.simulation.experiments.made_up import Quiet, Simulated, plan


def packed(folder: Path, made: Plan, simulated: Simulated | None = None) -> Path:
    """The file of a comparison that has run in `folder`."""
    run_all(made, folder, simulate=simulated or Simulated(), progress=Quiet())
    path = folder / NAME
    path.write_bytes(pack_runs(made, folder) or b"")
    return path


def changed(path: Path, **values: object) -> Path:
    """The file with other values in its first line."""
    first, *others = lzma.decompress(path.read_bytes()).decode().splitlines()
    lines = [json.dumps({**json.loads(first), **values}), *others]
    path.write_bytes(lzma.compress("\n".join(lines).encode()))
    return path


def test_two_machines_share_the_seeds(tmp_path: Path) -> None:
    first = packed(tmp_path / "a", plan(seeds=(1,)))
    second = packed(tmp_path / "b", plan(seeds=(2,)))
    whole, out = plan(seeds=(1, 2)), tmp_path / "whole"
    assert [take_runs(path, whole, out) for path in (first, second)] == [2, 2]
    simulated = Simulated()
    ended = run_all(whole, out, simulate=simulated, progress=Quiet())
    assert simulated.calls == []
    here = run_all(whole, tmp_path / "here", simulate=Simulated(), progress=Quiet())
    assert ended == here
    assert pack_runs(whole, out) == pack_runs(whole, tmp_path / "here")


def test_only_runs_of_the_plan_are_taken_and_runs_that_are_there_stay(tmp_path: Path) -> None:
    path = packed(tmp_path / "a", plan(seeds=(1, 2)))
    part = plan(seeds=(1,))
    out = tmp_path / "out"
    stopped = Simulated(stop_in="fedprox-result-seed1")
    run_all(part, out, simulate=stopped, progress=Quiet())
    assert take_runs(path, part, out) == 0
    assert kept_run(part.runs[1], out) is None
    assert not (out / "runs" / "fedavg-result-seed2").exists()


def test_unfinished_and_failed_runs_are_not_packed(tmp_path: Path) -> None:
    made = plan(seeds=(1,))
    path = packed(tmp_path, made, Simulated(fail_in="fedavg-result-seed1", stop_in="fedprox-result-seed1"))
    assert path.read_bytes() == b""


def test_runs_with_other_settings_are_refused_before_any_is_written(tmp_path: Path) -> None:
    path = packed(tmp_path / "a", plan("learning-rate=0.3"))
    with pytest.raises(ConfigError, match="fedavg-result-seed1 has other settings"):
        take_runs(path, plan(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not compressed", "cannot be read"),
        (lzma.compress(b'{"folder": 1}'), "line 1 is not an ended run"),
        (lzma.compress(b"\xff"), "cannot be read"),
        (lzma.compress(b"x" * 9999)[:40], "cannot be read"),
    ],
)
def test_a_broken_file_is_refused_with_its_name(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "broken.xz"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"broken\.xz: {reason}"):
        take_runs(path, plan(), tmp_path / "out")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.xz: cannot be read"):
        take_runs(tmp_path / "nowhere.xz", plan(), tmp_path / "out")


def test_a_run_without_history_is_refused(tmp_path: Path) -> None:
    path = changed(packed(tmp_path / "a", plan()), files={"federation.toml": "", "summary.json": "{}"})
    with pytest.raises(ConfigError, match=r"fedavg-result-seed1 has no history\.jsonl"):
        take_runs(path, plan(), tmp_path / "out")


def test_a_file_of_another_name_is_not_written(tmp_path: Path) -> None:
    path = packed(tmp_path / "a", plan(seeds=(1,)))
    files = json.loads(lzma.decompress(path.read_bytes()).splitlines()[0])["files"]
    changed(path, files={**files, "../../escaped": "x"})
    assert take_runs(path, plan(seeds=(1,)), tmp_path / "out") == 2
    assert not list(tmp_path.rglob("escaped"))
