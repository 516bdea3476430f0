"""The journal of a gateway."""

from contextlib import closing
from pathlib import Path

from edge_server.storage.gateway_journal import GatewayJournal


def journal(folder: Path):
    folder.mkdir(exist_ok=True)
    return closing(GatewayJournal(folder / "gateway.sqlite", "test", "barn"))


def test_sessions_grow_over_restarts_though_none_was_noted(tmp_path):
    with journal(tmp_path / "barn") as first:
        number = first.next_session()
    with journal(tmp_path / "barn") as second:
        assert second.next_session() > number + 50
    with journal(tmp_path / "another") as third:
        assert third.next_session() >= number


def test_sessions_grow_though_the_clock_is_set_back(tmp_path, monkeypatch):
    with journal(tmp_path / "barn") as first:
        number = first.next_session()
    monkeypatch.setattr("time.time", lambda: 0.0)
    with journal(tmp_path / "barn") as second:
        assert second.next_session() > number
