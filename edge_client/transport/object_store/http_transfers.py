"""What of a task goes past the broker, as a pure state machine that the session asks.

A blob is fetched from the task's store where that has an address for it. However such a way ends, what is
then still missing of the blob goes by chunks: nothing is tried twice for nothing. Only an address that has
ended is tried again, if the server has sent another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from schemas.messages import Task, Update
from schemas.messages.object_store import Addresses
from schemas.tensors.chunks import BlobRef


@dataclass(frozen=True)
class Fetch:
    """Command: get what is missing of a blob from this address, then say `FetchEnded`."""

    ref: BlobRef
    url: str = field(repr=False)


@dataclass(frozen=True)
class Put:
    """Command: put a blob of the store at this address, then say `PutEnded`."""

    ref: BlobRef
    url: str = field(repr=False)
    resumable: bool = False


@dataclass(frozen=True)
class StopTransfers:
    """Command: nothing that is on its way past the broker is wanted any more."""


@dataclass(frozen=True)
class FetchEnded:
    """Event: of this blob the chunks `have` are there now, as bits; `expired`: the address was not good.

    `moved` bytes came for that from the store.
    """

    digest: str
    have: int = 0
    expired: bool = False
    moved: int = 0


@dataclass(frozen=True)
class PutEnded:
    """Event: this blob lies in the store now, if it is `done`; `expired`: the address was not good."""

    digest: str
    done: bool = False
    expired: bool = False


ObjectStoreCommand = Fetch | Put | StopTransfers
ObjectStoreEvent = FetchEnded | PutEnded


@dataclass(frozen=True)
class ObjectStoreTransfers:
    """The newest `addresses`, what is on its way (by digest), and what goes by chunks for good."""

    addresses: Addresses = field(default_factory=Addresses)
    fetching: Mapping[str, Fetch] = field(default_factory=dict)
    putting: Put | None = None
    given_up: frozenset[str] = frozenset()

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return bool(self.fetching) or self.putting is not None


def readdressed(transfers: ObjectStoreTransfers, task: Task) -> ObjectStoreTransfers:
    """With the addresses that the newest repeat of a task has brought."""
    return transfers if task.addresses is None else replace(transfers, addresses=task.addresses)


def fetch(
    transfers: ObjectStoreTransfers, task: Task, refs: Iterable[BlobRef]
) -> tuple[ObjectStoreTransfers, list[Fetch]]:
    """Begin to fetch those of the blobs that have an address and were not given up."""
    urls = _urls(transfers, task)
    begun = [
        Fetch(ref, urls[ref.digest])
        for ref in refs
        if ref.digest in urls
        and ref.digest not in transfers.given_up
        and ref.digest not in transfers.fetching
    ]
    fetching = {**transfers.fetching, **{one.ref.digest: one for one in begun}}
    return replace(transfers, fetching=fetching), begun


def fetched(
    transfers: ObjectStoreTransfers, task: Task, event: FetchEnded
) -> tuple[ObjectStoreTransfers, Fetch | None]:
    """A fetch has ended: begin it again where only its address was too old, else give it up."""
    before = transfers.fetching[event.digest]
    url = _urls(transfers, task).get(event.digest)
    rest = {digest: one for digest, one in transfers.fetching.items() if digest != event.digest}
    if event.expired and url is not None and url != before.url:
        again = Fetch(before.ref, url)
        return replace(transfers, fetching={**rest, event.digest: again}), again
    return replace(transfers, fetching=rest, given_up=transfers.given_up | {event.digest}), None


def put(
    transfers: ObjectStoreTransfers, task: Task | None, result: object
) -> tuple[ObjectStoreTransfers, Put | None]:
    """Begin to put a result's blob into the store, if there it belongs and may go."""
    if task is None or not belongs_there(task, result) or not isinstance(result, Update):
        return transfers, None
    url, depot, ref = transfers.addresses.put, task.depot, result.blob
    if url is None or depot is None or not depot.has(url) or ref.digest in transfers.given_up:
        return transfers, None
    putting = Put(ref, url, depot.resumable)
    return replace(transfers, putting=putting), putting


def belongs_there(task: Task, result: object) -> bool:
    """Whether a result has a blob that shall lie in the task's store, and does not yet."""
    large = isinstance(result, Update) and task.depot is not None and task.depot.holds(result.blob)
    return large and isinstance(result, Update) and not result.deposited


def put_ended(
    transfers: ObjectStoreTransfers, task: Task | None, result: object, event: PutEnded
) -> tuple[ObjectStoreTransfers, Put | None]:
    """A put has ended: begin it again where only its address was too old, else give it up."""
    before, ended = transfers.putting, replace(transfers, putting=None)
    if event.expired and before is not None and transfers.addresses.put != before.url:
        return put(ended, task, result)
    return replace(ended, given_up=ended.given_up | {event.digest}), None


def _urls(transfers: ObjectStoreTransfers, task: Task) -> dict[str, str]:
    """The addresses that may be used, by digest."""
    depot = task.depot
    if depot is None:
        return {}
    named = ((task.blobs.get(name), url) for name, url in transfers.addresses.get.items())
    return {ref.digest: url for ref, url in named if ref is not None and depot.has(url)}
