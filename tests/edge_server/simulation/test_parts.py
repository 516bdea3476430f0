"""Unit tests of the simulator's parts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_client.transport import chunk_transfer
from edge_server.config.load import load_config
from edge_server.observability.counters import RunCounters
from edge_server.observability.snapshot import DeviceView
from edge_server.observability.terminal.final_summary import fleet_line
from edge_server.simulation.clock import Transits, later_windows, transfer_bytes
from edge_server.simulation.device import DeviceState
from edge_server.simulation.events import Timeline
from edge_server.simulation.inputs import as_simulated
from edge_server.simulation.population import make_population
from edge_server.simulation.resume import Boundary, cut_history, read_boundary, write_boundary
from schemas.errors import ConfigError
from schemas.tensors.chunks import BlobRef, Chunk

CHUNK = 1024


def _ref(chunks: int) -> BlobRef:
    return BlobRef(digest="ab" * 32, size=chunks * CHUNK, chunk_bytes=CHUNK)


def requested(commands: Sequence[object]) -> list[tuple[int, int]]:
    """Return the first index and the count of each request for chunks."""
    return [(ask.first, ask.count) for ask in commands if isinstance(ask, chunk_transfer.RequestChunks)]


# --- the timeline ---
def test_simultaneous_events_are_returned_in_posting_order() -> None:
    timeline: Timeline[str] = Timeline()
    for at, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        timeline.post(at, name)
    assert [timeline.next() for _ in range(3)] == ["a", "b", "c"]
    assert timeline.now == 2.0


def test_time_never_goes_back() -> None:
    timeline: Timeline[str] = Timeline(now=5.0)
    timeline.post(1.0, "late")
    timeline.next()
    assert timeline.now == 5.0


# --- transfers ---
@pytest.mark.parametrize("chunks", [1, 15, 16, 17, 24, 25, 100])
def test_the_counted_requests_are_those_of_a_real_transfer(chunks: int) -> None:
    receiving, commands = chunk_transfer.start_transfer(_ref(chunks), 0.0)
    requests = requested(commands)
    for index in range(chunks):
        receiving, commands = chunk_transfer.accept(receiving, Chunk("ab" * 8, index, bytes(CHUNK)), 0.0)
        requests += requested(commands)
    if chunks == 1:
        assert requests == []  # The message contains the blob.
    else:
        assert requests == [(0, min(16, chunks)), *later_windows(chunks)]


def test_every_chunk_has_a_header() -> None:
    assert transfer_bytes(_ref(3)) == 3 * CHUNK + 3 * 20


def test_a_cut_link_loses_no_progress() -> None:
    # 10 s of transfer, cut after 4 s: 6 s are left when it continues at 100 s.
    transits = Transits()
    first = transits.begin(_ref(1), 10.0, now=0.0)
    assert first is not None
    assert first.ends_at == 10.0
    transits.cut(now=4.0)
    assert transits.finish(first.ref.digest, first.number) is None
    again = transits.begin(_ref(1), 10.0, now=100.0)
    assert again is not None
    assert again.ends_at == 106.0
    assert transits.finish(again.ref.digest, again.number) == _ref(1)


def test_blobs_of_one_device_share_its_link() -> None:
    transits = Transits()
    other = BlobRef(digest="cd" * 32, size=CHUNK, chunk_bytes=CHUNK)
    transits.begin(_ref(1), 10.0, now=0.0)
    second = transits.begin(other, 5.0, now=0.0)
    assert second is not None
    assert second.ends_at == 15.0
    assert transits.begin(other, 5.0, now=1.0) is None


# --- the population ---
def test_tiers_and_boards_are_mixed_and_every_example_is_assigned() -> None:
    config = load_config("attending", ["num-clients=10"])
    devices = make_population(config, np.repeat(np.arange(10), 10))
    assert [device.tier for device in devices] == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    assert [device.board for device in devices[:2]] == ["pi-zero-2", "pi-3"]
    assert devices[0].name == "device-0001"
    held = np.sort(np.concatenate([device.train for device in devices]))
    assert held.tolist() == list(range(100))


def test_without_tiers_the_boards_alternate() -> None:
    config = load_config("fedavg", ["num-clients=6"])
    boards = [device.board for device in make_population(config, np.zeros(60, np.int64))]
    assert len(set(boards)) == 5
    assert boards[0] == boards[5]


def test_a_device_has_the_stated_number_of_examples_and_holds_out_some() -> None:
    words = ["num-clients=4", "samples-per-client=10", "hold-out=0.2"]
    for device in make_population(load_config("fedavg", words), np.zeros(100, np.int64)):
        assert (len(device.train), len(device.held_out)) == (8, 2)
        assert not set(device.train) & set(device.held_out)


def test_the_hold_out_of_a_virtual_device_has_all_its_classes() -> None:
    labels = np.repeat(np.arange(10), 24)
    config = load_config("fedavg", ["num-clients=2", "hold-out=0.2"])
    for device in make_population(config, labels):
        assert set(labels[device.held_out]) == set(labels[device.train]) == set(range(10))


def test_the_examples_of_a_recording_are_on_one_side_of_one_device() -> None:
    origins = np.repeat(np.arange(40), 3)
    config = load_config("fedavg", ["num-clients=4", "hold-out=0.2"])
    devices = make_population(config, origins % 2, origins)
    sides = [set(origins[part]) for device in devices for part in (device.train, device.held_out)]
    assert sum(map(len, sides)) == 40
    assert all(len(device.held_out) for device in devices)


# --- checkpoints ---
def test_a_boundary_is_read_as_it_was_written(tmp_path: Path) -> None:
    tally = RunCounters()
    tally.count_received("a", 3)
    tally.count_refusal(None, "malformed")
    held = frozenset({"11" * 32, "22" * 32})
    boundary = Boundary("r", 4, 7, 0.1 + 0.2, {"a": DeviceState(2, None, held), "b": DeviceState(1, 3.5)})
    write_boundary(tmp_path, boundary, tally)
    restored = RunCounters()
    assert read_boundary(tmp_path, restored) == boundary
    assert (restored.uplink, restored.downlink, restored.refusals) == (
        tally.uplink,
        tally.downlink,
        tally.refusals,
    )


def test_history_is_truncated_to_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"round":1}\n{"round":2}\n{"rou')
    assert cut_history(path, 2) == ['{"round":1}', '{"round":2}']
    assert path.read_text() == '{"round":1}\n{"round":2}\n'
    with pytest.raises(ConfigError, match="does not hold the 3 rounds"):
        cut_history(path, 3)


# --- the display ---
def test_many_devices_are_counted_by_tier() -> None:
    views = [DeviceView(f"d{n}", n % 2 + 1, 0.5, "offline" if n == 0 else "idle") for n in range(30)]
    assert fleet_line(views) == "29 devices: 14 of tier 1, 15 of tier 2"


def test_without_data_or_shapes_the_shipped_digits_are_used() -> None:
    assert as_simulated(load_config("fedavg")).data.source == "digits"
    assert as_simulated(load_config("fedavg", ["data.source=MNIST"])).data.source == "MNIST"
    # Devices and server share one source; the server tests on the part that no device has.
    assert as_simulated(load_config("fedavg", ["data.source=npz:a.npz"])).data.source == "npz:a.npz#test"
    shaped = load_config("fedavg", ["model.input-shape=[1, 28, 28]", "num-classes=10"])
    assert as_simulated(shaped).data.source is None
