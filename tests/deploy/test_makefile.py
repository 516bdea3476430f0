"""The Makefile, shell scripts, and the commands of the README."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import edge_server
from edge_server.cli.main import main
from tests.deploy.files import DEPLOY

ROOT = DEPLOY.parent
SHELL = sorted({ROOT / "Makefile", ROOT / ".ci" / "run", *DEPLOY.rglob("*.sh"), *ROOT.glob("findings/*.sh")})


def test_make_help_lists_targets_and_runs_none(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    inner = tmp_path / "make"
    inner.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    inner.chmod(0o755)
    # Commands within the recipe find this `make`.
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run([make, "help"], cwd=ROOT, env={"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0
    assert not (tmp_path / "ran").exists()
    phony = re.findall(r"[\w-]+", re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[0])
    assert set(re.findall(r"^make ([\w-]+)", done.stdout, re.M)) == {*phony} - {"help"}


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_no_text_of_a_script_is_run_as_a_command(script: Path) -> None:
    code = re.sub(r"^\s*@?#.*$|\s#\s.*$", "", script.read_text(), flags=re.M)
    assert "`" not in re.sub(r"'[^']*'", "", code)


def test_the_first_federation_of_the_readme_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for place in [Path("photos", name, f"{number}.png") for name in ("bee", "wasp") for number in range(15)]:
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(place)
    readme = (ROOT / "README.md").read_text()
    first = readme.partition("## Your own first federation")[2].partition("\n## ")[0]
    commands = re.findall(r"^    \.venv/bin/edge-server ([^#\n]*)", first, re.M)
    assert [words.split()[0] for words in commands] == ["init", "simulate"]
    answers = iter(("", "", "photos", "1", "fedavg"))
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    for words in commands:
        small = ["input-shape=[3,8,8]"] if "simulate" in words else []
        assert main([*words.split(), *small]) == 0, capsys.readouterr().err
    source, override = re.findall(r"edge_server\.simulate\((.*?)\)`", readme)[0].replace('"', "").split(", ")
    assert edge_server.load_config(source, [override]).num_classes == 2
