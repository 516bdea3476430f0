"""Updates that are added as soon as they are examined make the same sum as those added at the end."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_client.compression.chain import make_chain
from edge_client.pruning.index_sets import extract
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.aggregators import worker
from edge_server.coordinator.aggregators.worker import EarlySums, ToAdd, rest_of, source_of
from edge_server.coordinator.validation.contents import UnpackedCache
from edge_server.strategy.aggregation.array_stores import MemoryArrays
from edge_server.strategy.aggregation.partial_sums import COARSE, FINE, sum_clients
from schemas.strategy import Component
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Groups
from tests.edge_server.strategy.network import CHANNELS, MAP, arrays
from tests.schemas.examples import plain_update

CHAIN = make_chain([Component(name="int8", options={"levels": 7}), Component(name="zstd")])
LIMIT = 1_000_000


class Place:
    """Updates on disk, and the early sum of some of them."""

    def __init__(self, folder: Path) -> None:
        self.store, self.cache = BlobStore(folder / "blobs"), UnpackedCache(folder / "unpacked")
        self.early = EarlySums([], MAP, folder / "blobs", folder / "unpacked")

    def sent(self, client: str, k: int, weight: int = 10) -> ToAdd:
        spec = SubModelSpec(kept={"hidden": 2 + k % (CHANNELS - 2)})
        encoded = CHAIN.encode(extract(arrays(k), spec, MAP), seed=k).groups
        blob = self.store.put_groups(
            {**encoded, "attention": {"hidden": np.full(3, k, np.float32)}}, write=CHAIN.write
        )
        return ToAdd(plain_update(client, weight, blob=blob, spec=spec), weight)

    def examined(self, members: Sequence[ToAdd]) -> None:
        for member in members:
            self.early.unpacked.transient_groups(self.store.blob_path(member.update.blob.digest), limit=LIMIT)
        self.early.add(members)

    def summed(self, members: Sequence[ToAdd]) -> tuple[Groups, dict[str, Groups]]:
        sources = [source_of(member, self.store.directory, self.cache) for member in members]
        weights = {member.update.device: member.weight for member in members}
        made = sum_clients(sources, weights, [], MAP, keep=MemoryArrays)
        return made.groups, {source.client: rest_of(source) for source in sources}

    def taken(self) -> tuple[Groups, dict[str, Groups]]:
        stores = [MemoryArrays(), MemoryArrays()]
        rests = self.early.take(iter(stores).__next__)
        return dict(zip((COARSE, FINE), stores, strict=True)), rests


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def same(found: tuple[Groups, dict[str, Groups]], expected: tuple[Groups, dict[str, Groups]]) -> bool:
    for group in (COARSE, FINE):
        for name in MAP.parameters:
            np.testing.assert_array_equal(found[0][group][name], expected[0][group][name])
    assert found[1].keys() == expected[1].keys()
    for client, groups in expected[1].items():
        assert found[1][client].keys() == groups.keys()
        assert list(found[1][client]["model"]) == list(groups["model"])
        np.testing.assert_array_equal(found[1][client]["attention"]["hidden"], groups["attention"]["hidden"])
    return True


def test_the_sum_is_that_of_the_files(place, monkeypatch):
    members = [place.sent(f"c{k}", k, 3 + k) for k in range(7)]
    expected = place.summed(members)
    for path in place.cache.folder.glob("*"):
        path.unlink()
    monkeypatch.setattr(worker.UnpackedCache, "unpack", None)  # nothing is written
    for part in (members[:3], members[3:4], members[4:]):
        place.examined(part)
    assert place.early.complete(members[::-1])
    assert same(place.taken(), expected)
    assert not place.early.complete(members)


def test_updates_that_are_missing_are_read_from_their_files(place):
    members = [place.sent(f"c{k}", k) for k in range(4)]
    place.examined(members[:2])
    assert place.early.complete(members)
    assert same(place.taken(), place.summed(members))


def test_an_update_that_is_examined_twice_counts_once(place):
    members = [place.sent(f"c{k}", k) for k in range(2)]
    place.examined(members)
    place.examined(members[:1])
    assert place.early.complete(members)
    assert same(place.taken(), place.summed(members))


@pytest.mark.parametrize("wanted", [[0, 1], [0, 1, 3]], ids=["one is refused", "one has another weight"])
def test_a_sum_of_other_updates_than_wanted_is_forgotten(place, wanted):
    members = [*(place.sent(f"c{k}", k) for k in range(3)), place.sent("c2", 2, weight=11)]
    place.examined(members[:3])
    assert not place.early.complete([members[index] for index in wanted])
    place.examined(members[:1])
    assert place.early.complete(members[:1])
    assert same(place.taken(), place.summed(members[:1]))


def test_another_update_of_a_client_begins_anew(place):
    first, other, again = place.sent("c0", 0), place.sent("c1", 1), place.sent("c0", 5)
    place.examined([first, other])
    place.examined([again])
    assert place.early.complete([other, again])
    assert same(place.taken(), place.summed([other, again]))
