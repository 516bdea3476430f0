"""Deliveries to simulated devices between rounds."""

from contextlib import closing
from pathlib import Path

import pytest

from edge_server.storage.journal_reader import JournalReader
from schemas.errors import ConfigError
from tests.edge_server.simulation.small import StopAfter, last_model, run
from tests.slow import mark_slow

WORDS = ("num-clients=2", "rounds=3", "local-epochs=1")


@mark_slow
def test_deliveries_between_rounds_do_not_change_the_training(tmp_path: Path) -> None:
    run(tmp_path / "plain", "fedavg", *WORDS)
    delivering = (*WORDS, "deliver-every=2")
    # The run stops after closing round two, during its delivery, which the resumed run repeats.
    run(tmp_path / "delivered", "fedavg", *delivering, watcher=StopAfter(2))
    summary = run(tmp_path / "delivered", "fedavg", *delivering, resume=True)
    assert summary.outcome == "finished"
    assert last_model(tmp_path / "delivered") == last_model(tmp_path / "plain")
    assert all(device.onnx_bytes for device in summary.devices)
    assert delivered(tmp_path / "delivered")[-2:] == [2, 3]
    assert delivered(tmp_path / "plain") == []


def delivered(folder: Path) -> list[int]:
    """Return the rounds after which a delivery was planned."""
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        return [planning.round for planning in reader.plannings() if planning.deliver]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("deliver=none",), 'nothing is delivered with deliver = "none": leave one of the two out'),
        (
            ("mode=buffered", "buffer-size=1"),
            'leave it out, which delivers at the end, or set mode = "rounds"',
        ),
    ],
)
def test_deliveries_between_rounds_need_rounds_and_deliveries(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=r"\[federation\] deliver-every") as caught:
        run(tmp_path, "fedavg", *WORDS, "deliver-every=1", *words)
    assert message in str(caught.value)
