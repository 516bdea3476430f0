"""Measuring the largest packet, and splitting messages into parts."""

import hashlib
import random

import pytest

from edge_client.transport import packet_size
from edge_client.transport.message_parts import MAX_OPEN, PART_HEADER_BYTES, Parts, split
from edge_client.transport.packet_size import MARGIN, PATIENCE_S, SMALL_BYTES, SMALL_PATIENCE_S, Sizing
from schemas.errors import ConfigError
from schemas.messages.message import MAX_MESSAGE_BYTES
from schemas.tensors.chunks import CHUNK_SIZES


def found(passes: int, *, announced: int | None = None, cuts: bool = False, own: bool = True) -> Sizing:
    """The result if payloads up to `passes` bytes return; with `cuts`, larger ones end the connection."""
    now, sizing = 0.0, packet_size.begin(announced, 0.0)
    while sizing.found is None:
        assert sizing.payload_bytes is not None
        if own and sizing.payload_bytes <= passes:
            sizing = packet_size.on_echo(sizing, sizing.payload_bytes, now)
        elif own and cuts:
            sizing = packet_size.again(packet_size.cut(sizing), announced, now)
        else:
            now += max(PATIENCE_S, SMALL_PATIENCE_S)
            sizing = packet_size.overdue(sizing, now)
    return sizing


@pytest.mark.parametrize("cuts", [True, False])
@pytest.mark.parametrize("size", CHUNK_SIZES)
def test_the_largest_returned_size_is_found(size: int, cuts: bool) -> None:
    sizing = found(size + MARGIN, cuts=cuts)
    assert (sizing.found, sizing.measured) == (size, True)


@pytest.mark.parametrize("cuts", [True, False])
def test_a_broker_that_returns_no_size_is_refused_with_a_remedy(cuts: bool) -> None:
    with pytest.raises(ConfigError, match=r"below 16384 bytes only.*max_packet_size"):
        found(1000, cuts=cuts)


@pytest.mark.parametrize(
    ("announced", "size"),
    [(65_536, 31 * 1024), (32_768, 31 * 1024), (32_767, 15 * 1024), (16_384, 15 * 1024)],
)
def test_the_announced_size_is_not_exceeded(announced: int, size: int) -> None:
    assert found(10**6, announced=announced).found == size


def test_an_announced_size_below_16_kb_is_refused_immediately() -> None:
    with pytest.raises(ConfigError, match="of 16383 bytes at most, and at least 16384 are needed"):
        packet_size.begin(16_383, 0.0)


def test_without_any_echo_the_announced_size_is_used() -> None:
    assert found(0, own=False, announced=70_000) == Sizing(
        (65_536, 31 * 1024, 15 * 1024), until=SMALL_PATIENCE_S, found=65_536
    )


@pytest.mark.parametrize("cuts", [True, False])
def test_a_broker_is_not_refused_for_one_bad_time_in_which_every_size_failed(cuts: bool) -> None:
    sizing = packet_size.on_echo(packet_size.begin(None, 0.0), SMALL_BYTES, 0.0)
    for _ in CHUNK_SIZES:
        if cuts:
            sizing = packet_size.on_echo(
                packet_size.again(packet_size.cut(sizing), None, 0.0), SMALL_BYTES, 0.0
            )
        else:
            sizing = packet_size.overdue(sizing, sizing.until)
    assert sizing.left == CHUNK_SIZES
    assert packet_size.on_echo(sizing, CHUNK_SIZES[0] + MARGIN, 0.0).found == CHUNK_SIZES[0]


def test_a_connection_lost_before_a_probe_does_not_affect_the_sizes() -> None:
    sizing = packet_size.begin(None, 0.0)
    assert packet_size.cut(sizing) == sizing


def test_only_messages_that_do_not_fit_are_split() -> None:
    payload = random.Random(1).randbytes(100_000)
    assert split(payload, None) == split(payload, 100_000) == [payload]
    parts = split(payload, 15_380)
    assert max(map(len, parts)) == 15_380
    together, completed = Parts(), []
    for part in parts:
        completed.append(together.take("t", part))
    assert completed == [None] * (len(parts) - 1) + [payload]
    assert len(together) == 0


def test_parts_of_two_topics_do_not_mix_and_duplicates_are_ignored() -> None:
    first, second = (random.Random(seed).randbytes(40_000) for seed in (1, 2))
    together = Parts()
    completed = [
        whole
        for pair in zip(split(first, 15_380), split(second, 15_380), strict=True)
        for topic, part in zip("ab", pair, strict=True)
        for whole in (together.take(topic, part), together.take(topic, part) if part[7] == 0 else None)
        if whole is not None
    ]
    assert completed == [first, second]


@pytest.mark.parametrize("size", [0, 1, PART_HEADER_BYTES - 1, PART_HEADER_BYTES])
def test_an_invalid_part_completes_no_message(size: int) -> None:
    part = split(bytes(50_000), 15_380)[0][:size]
    assert Parts().take("t", part) == (part if size < PART_HEADER_BYTES else None)


def test_an_endless_message_is_limited_in_memory() -> None:
    together = Parts()
    endless = split(bytes(MAX_MESSAGE_BYTES + 20_000), 15_380)
    assert [together.take("t", part) for part in endless] == [None] * len(endless)
    for topic in range(1000):
        together.take(f"{topic}", endless[0])
    assert len(together) == MAX_OPEN


def test_a_message_with_a_changed_part_is_not_completed() -> None:
    parts = split(bytes(30_000), 15_380)
    parts[1] = parts[1][:-1] + b"x"
    assert hashlib.sha256(parts[1]).digest() != hashlib.sha256(split(bytes(30_000), 15_380)[1]).digest()
    together = Parts()
    assert [together.take("t", part) for part in parts] == [None] * len(parts)
