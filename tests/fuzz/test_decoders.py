"""For any bytes a decoder returns a value or raises a `PeerError`."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_server.config.load import load_config
from schemas.errors import ConfigError
from tests.fuzz.targets import LIES, TARGETS, Target, decoded, safetensors
from tests.groups import encode_groups
from tests.schemas.examples import GROUPS

EXAMPLES = settings(max_examples=25, deadline=None)
every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)

scalars = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.integers(2**62, 2**70)
    | st.just(10**4200)
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "\0", "nan", "0" * 64, "birth", "a" * 600])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@every_target
def test_valid_examples_are_accepted(target: Target) -> None:
    assert decoded(target, target.seeds[0])


@every_target
@EXAMPLES
@given(data=st.binary(max_size=300))
def test_any_bytes(target: Target, data: bytes) -> None:
    decoded(target, data)


@every_target
@EXAMPLES
@given(draw=st.data())
def test_a_valid_example_with_bytes_replaced_removed_or_doubled(target: Target, draw: st.DataObject) -> None:
    data = bytearray(draw.draw(st.sampled_from(target.seeds)))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, max(0, len(data) - 1)))
        width = draw.draw(st.integers(0, 8))
        data[at : at + width] = draw.draw(st.binary(max_size=8) | st.just(bytes(data[at : at + width]) * 2))
    decoded(target, bytes(data))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner_value in inner for place in _places(inner_value, (*path, key)))]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


JSON_TARGETS = ("message", "channel-map", "sub-model-spec", "chosen-channels")


@pytest.mark.parametrize("name", JSON_TARGETS)
@settings(max_examples=200, deadline=None)
@given(draw=st.data())
def test_a_valid_value_with_any_part_of_it_replaced_by_anything(name: str, draw: st.DataObject) -> None:
    target = TARGETS[name]
    value = json.loads(draw.draw(st.sampled_from(target.seeds)))
    place = draw.draw(st.sampled_from(_places(value)))
    decoded(target, json.dumps(_replaced(value, place, draw.draw(values))).encode())


HEADER = json.loads(encode_groups(GROUPS)[8:].split(b"}}")[0] + b"}}")


@pytest.mark.parametrize("name", ["groups", "update"])
@EXAMPLES
@given(draw=st.data())
def test_a_header_with_any_part_of_it_replaced_by_anything(name: str, draw: st.DataObject) -> None:
    place = draw.draw(st.sampled_from(_places(HEADER)))
    header = _replaced(HEADER, place, draw.draw(values))
    decoded(TARGETS[name], safetensors(header, bytes(draw.draw(st.integers(0, 64)))))


@pytest.mark.parametrize("name", ["groups", "update"])
@pytest.mark.parametrize("claim", LIES)
def test_a_false_header(claim: str, name: str) -> None:
    accepted = decoded(TARGETS[name], LIES[claim])
    # Unusual but valid: the later of two entries with one name counts, and a name may be arbitrary.
    assert not accepted or (name != "update" and claim in ("a name twice", "a NUL in a name"))


@pytest.mark.parametrize("depth", [100, 900, 950, 1000, 5000, 100_000])
@pytest.mark.parametrize(("open_", "close"), [(b"[", b"]"), (b'{"kind":', b"}")])
@pytest.mark.parametrize("name", JSON_TARGETS)
def test_deep_nesting(name: str, open_: bytes, close: bytes, depth: int) -> None:
    nested = open_ * depth + b"1" + close * depth
    for payload in (nested, open_ * depth, b'{"kind": ' + nested + b"}", b'{"kept": ' + nested + b"}"):
        assert not decoded(TARGETS[name], payload)


WORDS = ("rounds", "clients.fraction", "tiers.ratios", "firewall.canary", "strategy.combiner", "model.name")


@settings(max_examples=25, deadline=None)
@given(key=st.sampled_from(WORDS) | st.text(max_size=20), value=st.text(max_size=20) | scalars.map(repr))
def test_any_override_is_valid_or_a_config_error(key: str, value: str) -> None:
    with contextlib.suppress(ConfigError):
        load_config("fedavg", [f"{key}={value}"])


@settings(max_examples=25, deadline=None)
@given(content=st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode(errors="replace")))
def test_any_file_is_valid_or_a_config_error(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    with contextlib.suppress(ConfigError):
        load_config(str(path))
