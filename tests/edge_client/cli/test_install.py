"""`edge-client install`: the launcher and the first environment, without a network."""

import sys
from functools import partial
from pathlib import Path

import pytest

from edge_client.agent.client_update import launcher
from edge_client.agent.client_update.installer import ReleaseInstaller
from edge_client.cli.main import EDGE_CLIENT
from schemas.security.client_release import fits_of
from schemas.security.manifest import encode_manifest, manifest_path
from tests.edge_client.agent.client_update.wheels import make_release, make_wheel, manifest_of
from tests.edge_client.signed import SERVER, STRANGER, public_file

INSTALLER = "edge_client.agent.client_update.installer.ReleaseInstaller"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A signed release and the key, as on a stick."""
    archive = make_release(tmp_path / "release.tar", make_wheel(tmp_path / "wheels", "0.2.0"))
    manifest_path(archive).write_bytes(encode_manifest(SERVER.sign(manifest_of(archive, "0.2.0"))))
    public_file(tmp_path / "signing.pub")
    return archive


def install(tmp_path: Path, *words: object) -> int:
    return EDGE_CLIENT.run(["install", *map(str, words), "--root", str(tmp_path / "client")])


def test_a_board_without_a_network_gets_the_launcher_and_the_first_slot(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(INSTALLER, partial(ReleaseInstaller, own_pip=False))
    assert install(tmp_path, archive, "--trust", tmp_path / "signing.pub") == 0
    root = (tmp_path / "client").resolve()
    assert f"{root}/launch run" in capsys.readouterr().out
    assert launcher.program(root) == root / "a" / launcher.PROGRAM
    assert install(tmp_path, archive, "--trust", tmp_path / "signing.pub") == 2
    assert "a client is installed there" in capsys.readouterr().err


def test_the_environment_of_the_command_can_be_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "venv" / launcher.PROGRAM
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert install(tmp_path) == 0
    assert launcher.read_current(tmp_path / "client") == str(tmp_path / "venv")


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The complaint of an installation that has left no folder."""
    assert install(tmp_path, *words) == 2
    assert not (tmp_path / "client").exists()
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    return complaint


def test_what_is_not_trusted_or_not_whole_is_refused(
    tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = ("--trust", tmp_path / "signing.pub")
    assert "--trust KEY.pub" in refused(tmp_path, capsys, archive)
    public_file(tmp_path / "signing.pub", STRANGER)
    assert "is not trusted" in refused(tmp_path, capsys, archive, *trust)
    public_file(tmp_path / "signing.pub")
    archive.write_bytes(archive.read_bytes() + b"\0")
    assert "the signature is for" in refused(tmp_path, capsys, archive, *trust)
    manifest_path(archive).unlink()
    assert "copy the release and its signature" in refused(tmp_path, capsys, archive, *trust)


def test_a_release_for_another_board_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make_wheel(tmp_path / "wheels", "0.2.0", tags="cp311-cp311-manylinux_2_28_riscv64")
    archive = make_release(tmp_path / "release.tar", wheel, fits=fits_of([wheel.name]))
    manifest_path(archive).write_bytes(encode_manifest(SERVER.sign(manifest_of(archive, "0.2.0"))))
    public_file(tmp_path / "signing.pub")
    assert "no wheels for" in refused(tmp_path, capsys, archive, "--trust", tmp_path / "signing.pub")
