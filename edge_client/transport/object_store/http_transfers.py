"""A task's transfers from and to the object store, as a pure state machine of the session.

A blob is fetched from the store if that has an address for it. After a failure the rest of the blob goes in
chunks over MQTT; only an expired address is replaced, once the server has sent a newer one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from schemas.messages import Task, Update, blobs
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, ChunkSet


@dataclass(frozen=True)
class Fetch:
    """Command: download the missing chunks of a blob from this address, then report `FetchEnded`."""

    ref: BlobRef
    url: str = field(repr=False)


@dataclass(frozen=True)
class Put:
    """Command: upload a local blob to this address, then report `PutEnded`."""

    ref: BlobRef
    url: str = field(repr=False)
    resumable: bool = False


@dataclass(frozen=True)
class StopTransfers:
    """Command: stop all transfers."""


@dataclass(frozen=True)
class FetchEnded:
    """Event: a download ended with the chunks `have`; `expired`: the store refused the address.

    `moved` is the number of bytes received.
    """

    digest: str
    have: ChunkSet = NO_CHUNKS
    expired: bool = False
    moved: int = 0


@dataclass(frozen=True)
class PutEnded:
    """Event: an upload ended, successfully if `done`; `expired`: the store refused the address."""

    digest: str
    done: bool = False
    expired: bool = False


ObjectStoreCommand = Fetch | Put | StopTransfers
ObjectStoreEvent = FetchEnded | PutEnded


@dataclass(frozen=True)
class ObjectStoreTransfers:
    """The newest addresses, the running transfers, and the digests that go in chunks from now on."""

    addresses: blobs.Addresses = field(default_factory=blobs.Addresses)
    fetching: Mapping[str, Fetch] = field(default_factory=dict)
    putting: Put | None = None
    given_up: frozenset[str] = frozenset()

    @property
    def busy(self) -> bool:
        return bool(self.fetching) or self.putting is not None


def with_new_addresses(transfers: ObjectStoreTransfers, task: Task) -> ObjectStoreTransfers:
    """Take the addresses from the newest repetition of a task."""
    return transfers if task.addresses is None else replace(transfers, addresses=task.addresses)


def fetch_blobs(
    transfers: ObjectStoreTransfers, task: Task, refs: Iterable[BlobRef]
) -> tuple[ObjectStoreTransfers, list[Fetch]]:
    """Begin to fetch the blobs that have an address and have not failed."""
    urls = _urls(transfers, task)
    begun = [
        Fetch(ref, urls[ref.digest])
        for ref in refs
        if ref.digest in urls
        and ref.digest not in transfers.given_up
        and ref.digest not in transfers.fetching
    ]
    fetching = {**transfers.fetching, **{command.ref.digest: command for command in begun}}
    return replace(transfers, fetching=fetching), begun


def on_fetch_end(
    transfers: ObjectStoreTransfers, task: Task, event: FetchEnded
) -> tuple[ObjectStoreTransfers, Fetch | None]:
    """Handle the end of a fetch: repeat it if only its address had expired, else give it up."""
    before = transfers.fetching[event.digest]
    url = _urls(transfers, task).get(event.digest)
    rest = {digest: command for digest, command in transfers.fetching.items() if digest != event.digest}
    if event.expired and url is not None and url != before.url:
        again = Fetch(before.ref, url)
        return replace(transfers, fetching={**rest, event.digest: again}), again
    return replace(transfers, fetching=rest, given_up=transfers.given_up | {event.digest}), None


def put_result(
    transfers: ObjectStoreTransfers, task: Task | None, result: object
) -> tuple[ObjectStoreTransfers, Put | None]:
    """Begin to upload a result's blob if it belongs in the object store and has a permitted address."""
    if task is None or not goes_to_object_store(result, task):
        return transfers, None
    url, object_store, ref = transfers.addresses.put, task.depot, result.blob
    if url is None or object_store is None or not object_store.has(url) or ref.digest in transfers.given_up:
        return transfers, None
    putting = Put(ref, url, object_store.resumable)
    return replace(transfers, putting=putting), putting


def goes_to_object_store(result: object, task: Task) -> TypeGuard[Update]:
    """Whether the task's object store must receive the result's blob and does not hold it yet."""
    if not isinstance(result, Update) or task.depot is None:
        return False
    return task.depot.holds(result.blob) and not result.deposited


def on_put_end(
    transfers: ObjectStoreTransfers, task: Task | None, result: object, event: PutEnded
) -> tuple[ObjectStoreTransfers, Put | None]:
    """Handle the end of an upload: repeat it if only its address had expired, else give it up."""
    before, ended = transfers.putting, replace(transfers, putting=None)
    if event.expired and before is not None and transfers.addresses.put != before.url:
        return put_result(ended, task, result)
    return replace(ended, given_up=ended.given_up | {event.digest}), None


def _urls(transfers: ObjectStoreTransfers, task: Task) -> dict[str, str]:
    """The permitted addresses by digest."""
    object_store = task.depot
    if object_store is None:
        return {}
    named = ((task.blobs.get(name), url) for name, url in transfers.addresses.get.items())
    return {ref.digest: url for ref, url in named if ref is not None and object_store.has(url)}
