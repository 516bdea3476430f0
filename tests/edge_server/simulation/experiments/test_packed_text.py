"""Texts in `.xz`."""

import pytest

from edge_server.simulation.experiments.ended_runs import pack_text, read_text


def test_a_text_is_read_packed_or_plain_by_the_same_name(tmp_path):
    path = tmp_path / "results.json"
    path.with_name("results.json.xz").write_bytes(pack_text("± packed\u2028\r\n"))
    assert read_text(path) == read_text(path.with_name("results.json.xz")) == "± packed\u2028\r\n"
    path.write_text("plain")
    assert read_text(path) == "plain"


def test_a_missing_text_is_missed_by_its_own_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.json'"):
        read_text(tmp_path / "results.json")
