"""Sections and verbs that were renamed."""

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


def test_a_run_file_of_the_previous_version_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = RunFolder.create(tmp_path / "run", load_config("fedavg", ["object-store.store=embedded"])).path
    file = path / "federation.toml"
    file.write_text(file.read_text().replace("[object-store]", "[blobs]"))
    assert load_config(str(file)).object_store.store == "embedded"
    assert "[blobs] of an earlier version is read as [object-store]" in caplog.text


def test_the_page_of_a_run_of_the_previous_version_opens(tmp_path: Path) -> None:
    path = RunFolder.create(tmp_path / "run", load_config("fedavg", ["object-store.store=embedded"])).path
    file = path / "federation.toml"
    file.write_text(file.read_text().replace("[object-store]", "[blobs]"))
    config = read_config(file)
    assert config is not None
    assert config.object_store.store == "embedded"


def test_a_users_own_file_next_to_a_models_folder_is_not_treated_as_a_runs_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "federation.toml").write_text(BEFORE)
    with pytest.raises(ConfigError, match=r"\[blobs\] is called \[object-store\]"):
        load_config(str(tmp_path / "federation.toml"))


def test_an_old_verb_is_refused_with_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blobs", "folder"]) == 2
    assert "the verb 'blobs' is called 'object-store'" in capsys.readouterr().err
