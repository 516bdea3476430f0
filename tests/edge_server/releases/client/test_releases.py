"""Making, storing and checking releases of the client, and what `client-release` refuses."""

import json
import zipfile
from pathlib import Path

import pytest

from edge_client.storage.client_archive import read_release
from edge_server.cli.main import EDGE_SERVER
from edge_server.releases.client.offering import Wanted, make_release
from edge_server.releases.client.store import ReleaseStore
from edge_server.security.signing_key import load_or_make_signing_key
from edge_server.storage import audit_log
from schemas.errors import ConfigError
from schemas.security.manifest import manifest_path
from tests.edge_client.agent.client_update.wheels import make_wheel

HOME = Wanted("home", extras=("onnx-client",))


@pytest.fixture
def service(tmp_path: Path) -> Path:
    folder = tmp_path / "service"
    folder.mkdir()
    load_or_make_signing_key(folder / "signing.key")
    (folder / "service.toml").write_text('[[federations]]\nname = "home"\nbroker = "mqtt://127.0.0.1:1"\n')
    return folder


@pytest.fixture
def store(service: Path) -> ReleaseStore:
    return ReleaseStore(service / "releases")


def client_release(service: Path, *words: object) -> int:
    return EDGE_SERVER.run(["client-release", *map(str, words), "--service", str(service)])


def test_the_same_wheels_make_the_same_archive_and_a_second_signature(
    store: ReleaseStore, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "wheels", "0.2.0")
    signer = load_or_make_signing_key(tmp_path / "signing.key")
    first = make_release(store, tmp_path / "wheels", HOME, signer)
    again = make_release(store, tmp_path / "wheels", HOME, signer)
    assert first.ref == again.ref
    assert (first.name, first.federation, first.release.fits) == ("0.2.0", "home", ("any",))
    assert first.release.requirement == "edge-federation[onnx-client]==0.2.0"
    assert [stored.name for stored in store.releases()] == ["0.2.0"]
    assert not list(store.folder.glob(".*"))


def test_another_archive_does_not_take_the_name_of_a_release(store: ReleaseStore, tmp_path: Path) -> None:
    signer = load_or_make_signing_key(tmp_path / "signing.key")
    make_wheel(tmp_path / "wheels", "0.2.0")
    first = make_release(store, tmp_path / "wheels", HOME, signer)
    make_wheel(tmp_path / "wheels", "0.2.0", run="pass  # changed")
    with pytest.raises(ConfigError, match="another release"):
        make_release(store, tmp_path / "wheels", HOME, signer)
    assert store.checked_release("0.2.0").ref == first.ref


def test_an_archive_that_was_changed_is_not_offered(store: ReleaseStore, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "0.2.0")
    stored = make_release(
        store, tmp_path / "wheels", HOME, load_or_make_signing_key(tmp_path / "signing.key")
    )
    stored.archive.write_bytes(stored.archive.read_bytes().replace(b"edge-client", b"edge-cliemt"))
    with pytest.raises(ConfigError, match="make the release again"):
        store.checked_release("0.2.0")


@pytest.mark.parametrize(
    ("wheels", "told"),
    [
        ((), "no wheel of edge-federation"),
        ((("0.1.0", "py3-none-any"), ("0.2.0", "py3-none-any")), "2 wheels of edge-federation"),
        ((("0.2.0", "cp312-cp312-win_amd64"),), "no board for which every package has a wheel"),
    ],
)
def test_a_folder_that_makes_no_release_is_refused_with_a_remedy(
    store: ReleaseStore, tmp_path: Path, wheels: tuple[tuple[str, str], ...], told: str
) -> None:
    for version, tags in wheels:
        make_wheel(tmp_path / "wheels", version, tags=tags)
    with pytest.raises(ConfigError, match=told):
        make_release(store, tmp_path / "wheels", HOME, load_or_make_signing_key(tmp_path / "signing.key"))
    assert store.names() == []


def test_what_the_package_needs_must_be_among_the_wheels(store: ReleaseStore, tmp_path: Path) -> None:
    needs = (
        "Requires-Dist: ruamel_yaml>=1\nRequires-Dist: tomli>=2; python_version < '3.11'\n"
        "Provides-Extra: onnx-client\nRequires-Dist: paho-mqtt>=2.2; extra == 'onnx-client'\n"
        "Provides-Extra: client\nRequires-Dist: torch>=2.5; extra == 'client'\n"
    )
    make_wheel(tmp_path / "wheels", "0.2.0", needs=needs)
    signer = load_or_make_signing_key(tmp_path / "signing.key")
    with pytest.raises(ConfigError, match="no wheel of paho-mqtt, ruamel-yaml, which edge-federation needs"):
        make_release(store, tmp_path / "wheels", HOME, signer)
    for name in ("paho_mqtt-2.2.0", "ruamel.yaml-1.0"):
        with zipfile.ZipFile(tmp_path / "wheels" / f"{name}-py3-none-any.whl", "w"):
            pass
    assert make_release(store, tmp_path / "wheels", HOME, signer).name == "0.2.0"


def test_make_list_and_show(service: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_wheel(tmp_path / "wheels", "0.2.0")
    stick = tmp_path / "stick"
    assert client_release(service, "make", "--wheels", tmp_path / "wheels", "--out", stick) == 0
    assert "edge-client install" in capsys.readouterr().out
    assert {path.name for path in stick.iterdir()} == {
        "edge-client-0.2.0.tar",
        "edge-client-0.2.0.tar.manifest.json",
        "signing.pub",
    }
    assert read_release(stick / "edge-client-0.2.0.tar").version == "0.2.0"
    assert client_release(service, "list", "--format", "json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["release"], listed["fits"], listed["rollout"]) == ("0.2.0", ["any"], None)
    assert client_release(service, "show", "0.2.0") == 0
    assert "edge_federation-0.2.0-py3-none-any.whl" in capsys.readouterr().out
    (entry,) = audit_log.read_entries(service / "audit.jsonl")
    assert (entry.what, entry.target) == ("client release made", "0.2.0")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "0.3.0"], "no client release '0.3.0'"),
        (["rollout", "../0.2.0"], "no client release '../0.2.0'"),
        (["rollout", "0.2.0", "--where", "site in"], "site in"),
        (["rollout", "0.2.0", "--withdraw"], "never rolled out"),
        (["make", "--wheels", "wheels", "--signing-key", "nowhere.key"], "no such file"),
        (["make", "--wheels", "nowhere"], "no wheel of edge-federation"),
        (
            ["make", "--wheels", "wheels", "--out", "wheels/file"],
            "--out wheels/file: the folder cannot be made",
        ),
        (["make", "--wheels", "wheels", "--extras", "onnx-cliemt"], "(did you mean 'onnx-client'?)"),
        (["make", "--wheels", "wheels", "--federation", "work"], "no federation 'work'"),
    ],
)
def test_bad_words_are_refused_in_one_line_and_change_nothing(
    service: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    make_wheel(tmp_path / "wheels", "0.2.0")
    (tmp_path / "wheels" / "file").touch()
    client_release(service, "make", "--wheels", "wheels")
    before = (service / "audit.jsonl").read_bytes()
    capsys.readouterr()
    assert client_release(service, *words) == 2
    complaint = capsys.readouterr().err
    assert told in complaint
    assert complaint.count("\n") == 1
    assert (service / "audit.jsonl").read_bytes() == before


def test_a_signature_of_another_file_is_not_accepted(store: ReleaseStore, tmp_path: Path) -> None:
    signer = load_or_make_signing_key(tmp_path / "signing.key")
    for version in ("0.2.0", "0.3.0"):
        make_wheel(tmp_path / version, version)
        make_release(store, tmp_path / version, HOME, signer)
    other = manifest_path(store.release("0.3.0").archive).read_bytes()
    manifest_path(store.release("0.2.0").archive).write_bytes(other)
    with pytest.raises(ConfigError, match="the signature is for"):
        store.checked_release("0.2.0")
