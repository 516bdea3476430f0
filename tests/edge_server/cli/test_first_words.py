"""First commands and mistakes of a new user: help, version, suggestions, one-line errors, exit code 2."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from edge_client.cli.app import CommandLine
from edge_client.cli.main import EDGE_CLIENT
from edge_server.cli.main import EDGE_SERVER
from edge_server.observability.dashboard.bind_address import DEFAULT_ADDRESS
from edge_server.observability.prometheus.address import DEFAULT
from edge_server.observability.terminal.tables import outcome_text
from tests.edge_server.observability.terminal.shown import summary

COMMANDS = {"edge-server": EDGE_SERVER, "edge-client": EDGE_CLIENT}


@pytest.mark.parametrize("words", [(EDGE_SERVER,), (EDGE_CLIENT,), (EDGE_SERVER, "models")])
def test_a_command_without_a_verb_prints_its_help(
    words: tuple[CommandLine, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = words
    assert command.run(rest) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("usage: ")
    assert "examples:" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("prog", COMMANDS)
def test_a_command_prints_its_version(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMANDS[prog].run(["--version"]) == 0
    assert re.fullmatch(rf"{prog} \d+\.\d+\S*\n", capsys.readouterr().out)


class Interrupted:
    """A module that Ctrl-C hits while it is imported."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("prog", COMMANDS)
def test_ctrl_c_during_imports_prints_one_line(
    prog: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = prog.replace("-", "_")
    monkeypatch.setitem(sys.modules, f"{package}.cli.main", Interrupted())
    assert importlib.import_module(f"{package}.__main__").main() == 130
    assert capsys.readouterr().err == f"{prog}: interrupted\n"


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("dashboard runs/home 127.0.0.1:9", ("127.0.0.1", 9)),
        ("dashboard runs/home --listen 127.0.0.1:9", ("127.0.0.1", 9)),
        ("dashboard --listen :9 runs/home", ("127.0.0.1", 9)),
        ("dashboard runs/home", DEFAULT_ADDRESS),
    ],
)
def test_the_dashboards_address_may_stand_behind_the_run(words: str, address: tuple[str, int]) -> None:
    args = EDGE_SERVER.parse(words.split())
    assert (args.run, args.address or args.listen) == (Path("runs/home"), address)


@pytest.mark.parametrize("option", ["--dashboard", "--metrics"])
def test_an_override_after_an_option_with_an_optional_address_is_an_override(option: str) -> None:
    args = EDGE_SERVER.parse(["simulate", "fedavg", option, "rounds=4", "--seed", "2", "lr=1"])
    assert args.overrides == ["rounds=4", "lr=1"]
    assert (args.dashboard, args.metrics) == (
        (DEFAULT_ADDRESS, None) if option == "--dashboard" else (None, DEFAULT)
    )


def test_an_address_after_the_option_is_its_address() -> None:
    args = EDGE_SERVER.parse(["simulate", "fedavg", "--dashboard", "127.0.0.1:9", "--metrics", "[::1]:4"])
    assert (args.dashboard, args.metrics) == (("127.0.0.1", 9), "[::1]:4")


SLIPS = {
    "a verb": ("edge-server chek", "there is no verb 'chek' (did you mean 'check'?)"),
    "no similar verb": ("edge-client zzz", "there is no verb 'zzz' (known: bench, doctor, enroll, "),
    "no file": ("edge-server check", "check: the following arguments are required: FEDERATION.toml|RECIPE;"),
    "no config": ("edge-server run", "run: the following arguments are required: FEDERATION.toml|RECIPE;"),
    "a recipe": ("edge-server check fedavg recipe=adafl", "name it as the first argument (edge-server "),
    "a recipe's key": ("edge-server check fedavg recipe.name=x", "'recipe.name=x': a recipe is not a key"),
    "a component": ("edge-server check fedavg selection=uniform", "write strategy.selection=..."),
    "no such key": ("edge-server check fedavg zzz=1", "unknown key 'zzz' (`edge-server check "),
    "a part of a key": ("edge-server check fedavg epochs=1", "(did you mean 'local-epochs'?)"),
    "an address": ("edge-server simulate fedavg --dashboard no.such.host.invalid", "before the option"),
    "a tier": ("edge-client run --tier x", "--tier: 'x' is not a whole number; edge-client run --help"),
    "a share": ("edge-client run --hold-out nan", "--hold-out: 'nan' is not a finite number"),
    "a share above 1": ("edge-client run --hold-out 2", "--hold-out: must be at least 0 and below 1, not 2"),
    "points": ("edge-client run --max-accuracy-loss -3", "must be between 0 and 100, not -3"),
    "a network": ("edge-client run --model-code mine", "'mine' is not MODULE:FACTORY, for instance"),
    "a port": ("edge-client serve x.onnx --port x", "'x' is not a whole number"),
    "a folder": ("edge-client run --data digits --state-dir FILE/x", "the folder cannot be made: Not a dir"),
    "a file": ("edge-client run --data digits --state-dir FILE", "the folder cannot be made: File exists"),
    "its profile": ("edge-client profile --no-benchmark --state-dir FILE", "the folder cannot be made"),
    "schemas": ("edge-server schemas --out FILE", "--out FILE: the folder cannot be made: File exists"),
    "a seed": (
        "edge-server simulate fedavg --seed x",
        "argument --seed: 'x' is not a whole number; edge-server",
    ),
    "a run's folder": ("edge-server simulate RUN", "this is a folder: name RUN/federation.toml"),
    "any folder": ("edge-server check FOLDER", "this is a folder: name a federation file, or a recipe"),
    "half a summary": (
        "edge-server devices RUN",
        "RUN/summary.json: not a summary: federation: Field required",
    ),
    "half a run": (
        "edge-server models add RUN",
        "RUN/summary.json: not a summary: federation: Field required",
    ),
    "an authority": ("edge-server enroll pi --out FOLDER --authority FILE", "name the authority's folder"),
    "no such code": ("edge-client enroll --code pi.code", "--code pi.code: there is no such file"),
    "a store's folder": (
        "edge-server object-store FILE --secret SECRET --port 0",
        "Not a directory: name another --port",
    ),
    "an archive": ("edge-server enroll pi --out FILE", "this is a file: name a folder for the files of pi"),
}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Create the paths that replace the placeholders of the slips."""
    for name in ("folder", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    for name in ("history.jsonl", "federation.toml"):
        (tmp_path / "run" / name).touch()
    (tmp_path / "run" / "summary.json").write_text("{}")
    (tmp_path / "secret").write_text("0123456789abcdef" * 4)
    (tmp_path / "secret").chmod(0o600)
    return {name.upper(): str(tmp_path / name) for name in ("file", "folder", "run", "secret")}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_causes_a_one_line_error_with_a_remedy_and_exit_code_2(
    slip: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    line, message = (_in_place(text, places) for text in SLIPS[slip])
    prog, *words = line.split()
    assert COMMANDS[prog].run(words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.err.startswith(f"{prog}: ")
    assert shown.out == ""


def _in_place(text: str, places: dict[str, str]) -> str:
    return re.sub("|".join(rf"\b{name}\b" for name in places), lambda found: places[found[0]], text)


def test_the_number_of_rounds_has_the_right_plural() -> None:
    assert ": 1 round in " in outcome_text(summary(rounds=1))
    assert ": 2 rounds in " in outcome_text(summary(rounds=2))
