"""Measuring the largest packet, and messages in parts."""

import hashlib
import random

import pytest

from edge_client.transport import packet_size
from edge_client.transport.message_parts import MAX_OPEN, PART_HEADER_BYTES, Parts, split
from edge_client.transport.packet_size import MARGIN, PATIENCE_S, SMALL_PATIENCE_S, Sizing
from schemas.errors import ConfigError
from schemas.messages.message import MAX_MESSAGE_BYTES
from schemas.tensors.chunks import CHUNK_SIZES


def found(passes: int, *, announced: int | None = None, cuts: bool = False, own: bool = True) -> Sizing:
    """The result if payloads up to `passes` bytes return; a larger one may cut the connection."""
    now, sizing = 0.0, packet_size.begin(announced, 0.0)
    while sizing.found is None:
        assert sizing.payload_bytes is not None
        if own and sizing.payload_bytes <= passes:
            sizing = packet_size.echoed(sizing, sizing.payload_bytes, now)
        elif own and cuts:
            sizing = packet_size.again(packet_size.cut(sizing), announced, now)
        else:
            now += max(PATIENCE_S, SMALL_PATIENCE_S)
            sizing = packet_size.overdue(sizing, now)
    return sizing


@pytest.mark.parametrize("cuts", [True, False])
@pytest.mark.parametrize("size", CHUNK_SIZES)
def test_the_largest_size_that_comes_back_is_found(size: int, cuts: bool) -> None:
    sizing = found(size + MARGIN, cuts=cuts)
    assert (sizing.found, sizing.measured) == (size, True)


@pytest.mark.parametrize("cuts", [True, False])
def test_where_none_comes_back_the_remedy_is_named(cuts: bool) -> None:
    with pytest.raises(ConfigError, match=r"below 16384 bytes only.*max_packet_size"):
        found(1000, cuts=cuts)


@pytest.mark.parametrize(
    ("announced", "size"),
    [(65_536, 31 * 1024), (32_768, 31 * 1024), (32_767, 15 * 1024), (16_384, 15 * 1024)],
)
def test_what_is_announced_is_not_exceeded(announced: int, size: int) -> None:
    assert found(10**6, announced=announced).found == size


def test_below_16_kb_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="of 16383 bytes at most, and at least 16384 are needed"):
        packet_size.begin(16_383, 0.0)


def test_without_any_echo_the_announced_size_is_used() -> None:
    assert found(0, own=False, announced=70_000) == Sizing(
        (65_536, 31 * 1024, 15 * 1024), until=SMALL_PATIENCE_S, found=65_536
    )


def test_a_connection_that_ends_before_anything_was_on_trial_says_nothing_of_sizes() -> None:
    sizing = packet_size.begin(None, 0.0)
    assert packet_size.cut(sizing) == sizing


def test_a_message_that_fits_goes_whole_and_another_in_parts_that_fit() -> None:
    payload = random.Random(1).randbytes(100_000)
    assert split(payload, None) == split(payload, 100_000) == [payload]
    parts = split(payload, 15_380)
    assert max(map(len, parts)) == 15_380
    together, heard = Parts(), []
    for part in parts:
        heard.append(together.take("t", part))
    assert heard == [None] * (len(parts) - 1) + [payload]
    assert len(together) == 0


def test_parts_of_two_topics_do_not_mix_and_doubled_ones_do_no_harm() -> None:
    one, other = (random.Random(seed).randbytes(40_000) for seed in (1, 2))
    together = Parts()
    heard = [
        whole
        for pair in zip(split(one, 15_380), split(other, 15_380), strict=True)
        for topic, part in zip("ab", pair, strict=True)
        for whole in (together.take(topic, part), together.take(topic, part) if part[7] == 0 else None)
        if whole is not None
    ]
    assert heard == [one, other]


@pytest.mark.parametrize("size", [0, 1, PART_HEADER_BYTES - 1, PART_HEADER_BYTES])
def test_a_part_that_is_none_makes_no_message(size: int) -> None:
    part = split(bytes(50_000), 15_380)[0][:size]
    assert Parts().take("t", part) == (part if size < PART_HEADER_BYTES else None)


def test_a_message_that_never_ends_takes_no_more_than_a_message() -> None:
    together = Parts()
    endless = split(bytes(MAX_MESSAGE_BYTES + 20_000), 15_380)
    assert [together.take("t", part) for part in endless] == [None] * len(endless)
    for topic in range(1000):
        together.take(f"{topic}", endless[0])
    assert len(together) == MAX_OPEN


def test_a_message_that_was_changed_on_its_way_is_none() -> None:
    parts = split(bytes(30_000), 15_380)
    parts[1] = parts[1][:-1] + b"x"
    assert hashlib.sha256(parts[1]).digest() != hashlib.sha256(split(bytes(30_000), 15_380)[1]).digest()
    together = Parts()
    assert [together.take("t", part) for part in parts] == [None] * len(parts)
