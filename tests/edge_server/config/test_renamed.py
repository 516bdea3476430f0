"""Sections and verbs that had another name."""

import logging
from pathlib import Path

import pytest

from edge_server.cli.main import main
from edge_server.config.load import load_config
from edge_server.observability.dashboard.run_reader import read_config
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError

BEFORE = 'recipe = "fedavg"\n[blobs]\nstore = "embedded"\n'


def test_an_old_section_is_refused_with_its_new_name(tmp_path: Path) -> None:
    (tmp_path / "home.toml").write_text(BEFORE)
    with pytest.raises(ConfigError, match=r"home.toml: \[blobs\] is called \[object-store\]: rename"):
        load_config(str(tmp_path / "home.toml"))
    with pytest.raises(ConfigError, match=r"\[blobs\] is called \[object-store\]"):
        load_config("fedavg", ["blobs.store=embedded"])


def test_the_file_of_a_run_that_the_version_before_wrote_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = RunFolder.create(tmp_path / "run", load_config("fedavg", ["object-store.store=embedded"])).path
    file = path / "federation.toml"
    file.write_text(file.read_text().replace("[object-store]", "[blobs]"))
    assert load_config(str(file)).object_store.store == "embedded"
    assert "[blobs] of an earlier version is read as [object-store]" in caplog.text


def test_the_page_of_a_run_that_the_version_before_wrote_opens(tmp_path: Path) -> None:
    path = RunFolder.create(tmp_path / "run", load_config("fedavg", ["object-store.store=embedded"])).path
    file = path / "federation.toml"
    file.write_text(file.read_text().replace("[object-store]", "[blobs]"))
    config = read_config(file)
    assert config is not None
    assert config.object_store.store == "embedded"


def test_a_users_own_file_beside_a_folder_of_models_is_not_taken_for_a_runs(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "federation.toml").write_text(BEFORE)
    with pytest.raises(ConfigError, match=r"\[blobs\] is called \[object-store\]"):
        load_config(str(tmp_path / "federation.toml"))


def test_an_old_verb_is_refused_with_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blobs", "folder"]) == 2
    assert "the verb 'blobs' is called 'object-store'" in capsys.readouterr().err
