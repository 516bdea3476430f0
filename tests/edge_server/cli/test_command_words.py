"""How `edge-server` parses words and options in any order, and refuses wrong ones."""

import pytest

from edge_server.cli.main import EDGE_SERVER
from edge_server.coordinator import launch


@pytest.mark.parametrize(
    "line", ["simulate fedavg rounds=3 workers=2 --seed 1", "simulate fedavg rounds=3 --seed 1 workers=2"]
)
def test_words_may_follow_options(line: str) -> None:
    args = EDGE_SERVER.parse(line.split())
    assert (args.config, args.overrides, args.seed) == ("fedavg", ["rounds=3", "workers=2"], 1)


def test_rows_may_follow_options() -> None:
    args = EDGE_SERVER.parse(["compare", "fedavg", "--seeds", "1,2", "attending", "rounds=3"])
    assert (args.words, args.seeds) == (["fedavg", "attending", "rounds=3"], (1, 2))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "simulate fedavg --sede 1",
            "simulate: there is no --sede (did you mean --seed?); edge-server simulate",
        ),
        (
            "simulate fedavg --see=1",
            "simulate: there is no --see=1 (did you mean --seed?); edge-server simulate",
        ),
        ("jobs add a b --zzz", "jobs add: there is no --zzz; edge-server jobs add --help"),
        ("dashboard runs --dashboard x", "there is no --dashboard x (did you mean --dashboard-token?)"),
        ("report runs/one runs/two", "runs/one: expected a run folder, found no such directory"),
        ("simulate", "required: FEDERATION.toml|RECIPE; edge-server simulate --help"),
        ("demo nowhere.toml", "nowhere.toml"),
        ("demo --torch-free 6", "--torch-free 6: expected 0 to 5 devices"),
        ("demo --torch-free=-1", "--torch-free -1: expected 0 to 5 devices"),
        ("compare fedavg --seeds 1,x", "'1,x' is not a list of different seeds such as 1,2,3"),
        ("compare fedavg --seeds 1,1", "'1,1' is not a list of different seeds such as 1,2,3"),
        ("compare fedavg --seeds=-1,2", "'-1,2' is not a list of different seeds such as 1,2,3"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EDGE_SERVER.run(line.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run fedavg", "this run has ended; another begins with the same command\n"),
        (
            "run fedavg --out x",
            "this run has ended; another begins with the same command and another --out\n",
        ),
        ("evaluate v0 fedavg", "nothing was measured; the same command asks again\n"),
        ("statistics fedavg", "nothing was measured; the same command asks again\n"),
    ],
)
def test_ctrl_c_before_the_first_round_says_how_to_begin_again(
    line: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "run_and_report", lambda *_: 130)
    assert EDGE_SERVER.run(line.split()) == 130
    assert capsys.readouterr().err == message
