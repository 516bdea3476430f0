"""A standby fetches entries over a network that loses, repeats and reorders."""

import random

import pytest

from edge_client.transport.chunk_transfer import RequestChunks, VerifyBlob, WriteChunk
from edge_server.coordinator.standby import following
from edge_server.coordinator.standby.following import Announced, Checked, ChunkArrived, Entry, Following, Tick
from schemas.messages import StandbyEntry
from schemas.tensors.chunks import BlobRef, Chunk, digest_of

ENTRIES = 12


def ref_of(data: bytes) -> BlobRef:
    return BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=1024)


FILES = [f"file {number} ".encode() * 400 for number in range(ENTRIES)]
CONTENTS = [Entry(files={f"blobs/{n}": ref_of(data)}, gone=(str(n),)) for n, data in enumerate(FILES)]
BLOBS = {digest_of(data): data for data in FILES}
BLOBS |= {digest_of(entry.model_dump_json().encode()): entry.model_dump_json().encode() for entry in CONTENTS}


def announcement(number: int, series: str = "s") -> Announced:
    ref = ref_of(CONTENTS[number - 1].model_dump_json().encode())
    return Announced(StandbyEntry(federation="home", standby="me", series=series, number=number, entry=ref))


class Edge:
    """Carries out the commands; a server answers requests, except those that are lost."""

    def __init__(self, seed: int, loss: float) -> None:
        self.chance, self.loss, self.now = random.Random(seed), loss, 0.0
        self.state = Following("me")
        self.applied: list[int] = []
        self.events: list[following.Event] = []

    def step(self, event: following.Event) -> None:
        self.state, commands = following.step(self.state, event, self.now)
        for command in commands:
            self.do(command)

    def do(self, command: following.Command) -> None:
        match command:
            case RequestChunks(ref, first, count):
                for index in range(first, first + count):
                    self.send(ref, index)
            case VerifyBlob(ref):
                self.step(Checked(ref, self.chance.random() > self.loss / 4))
            case following.OpenEntry(number, ref):
                self.step(following.Opened(number, Entry.model_validate_json(BLOBS[ref.digest])))
            case following.ApplyEntry(number, entry):
                assert entry == CONTENTS[number - 1]
                self.applied.append(number)
                self.step(following.Applied(number))
            case WriteChunk() | following.Report():
                pass

    def send(self, ref: BlobRef, index: int) -> None:
        data = BLOBS[ref.digest][index * 1024 : (index + 1) * 1024]
        for _ in range(self.chance.choice([1, 1, 2])):
            if self.chance.random() > self.loss:
                self.events.append(ChunkArrived(Chunk(ref.digest[:16], index, data)))

    def run(self, series: str = "s") -> None:
        """The server announces again what was not heard, until all is confirmed."""
        while self.state.confirmed < ENTRIES:
            assert self.now < 10_000
            self.now += 1.0
            for number in range(self.state.known + 1, ENTRIES + 1):
                if self.chance.random() > self.loss:
                    self.events.append(announcement(number, series))
            self.chance.shuffle(self.events)
            waiting, self.events = self.events, []
            for event in waiting:
                self.step(event)
            self.step(Tick())


@pytest.mark.parametrize(("seed", "loss"), [(0, 0.0), (1, 0.3), (2, 0.6)])
def test_entries_are_applied_in_order_and_once(seed: int, loss: float) -> None:
    edge = Edge(seed, loss)
    edge.run()
    assert edge.applied == list(range(1, ENTRIES + 1))
    assert not edge.state.receiving


def test_a_new_series_begins_again() -> None:
    edge = Edge(3, 0.0)
    edge.run()
    edge.step(announcement(1, series="next"))
    assert (edge.state.series, edge.state.confirmed) == ("next", 0)
    edge.run(series="next")
    assert edge.applied == [*range(1, ENTRIES + 1), *range(1, ENTRIES + 1)]


def test_a_series_is_not_begun_in_the_middle() -> None:
    edge = Edge(4, 0.0)
    edge.step(announcement(3))
    assert edge.state == Following("me")


def test_entries_for_another_standby_are_not_taken() -> None:
    edge = Edge(5, 0.0)
    message = announcement(1).message.model_copy(update={"standby": "other"})
    edge.step(Announced(message))
    assert edge.state == Following("me")


@pytest.mark.parametrize("sound", [True, False])
def test_the_check_of_a_blob_that_is_not_fetched_changes_nothing(sound: bool) -> None:
    edge = Edge(6, 0.0)
    edge.step(announcement(1))
    before = edge.state
    edge.step(Checked(ref_of(b"of an earlier series"), sound))
    assert edge.state is before
    assert edge.state.held == frozenset()
