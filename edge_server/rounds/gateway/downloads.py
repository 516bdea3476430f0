"""Blobs on their way down: each is fetched once over the far link, and handed on in the site.

It is requested in the name of a device whose task names it, so that what is above needs to know nothing of
gateways. Devices' requests wait until the blob is complete and verified.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import FAR_PATIENCE_S, Receiving
from edge_server.rounds.gateway import events
from edge_server.rounds.gateway.state import Gateway, Step
from schemas import errors, messages
from schemas.tensors.chunks import BlobRef, Chunk

Ask = Callable[[Receiving, float], tuple[Receiving, list[chunk_transfer.TransferCommand]]]


def task_given(gateway: Gateway, device: str, task: messages.Task, now: float, *, new: bool) -> Step:
    """Fetch what the task needs; of a `new` one, hand on the blobs that its device expects unasked."""
    commands: list[events.Command] = []
    for ref in {ref.digest: ref for ref in task.blobs.values()}.values():
        gateway, more = _fetch_if_missing(gateway, ref, now)
        commands += more
    for ref in task.pushed_blobs() if new else ():
        gateway, more = _hand_on(gateway, device, ref, range(1))
        commands += more
    return gateway, commands


def on_request(gateway: Gateway, request: messages.BlobRequest, now: float) -> Step | None:
    """A device requests chunks of a blob of its task; None for any other blob."""
    ref = _find_blob(gateway, request.device, request.digest)
    if ref is None:
        return None
    gateway, commands = _fetch_if_missing(gateway, ref, now)
    wanted = range(request.first, min(request.first + request.count, ref.chunks))
    handed, more = _hand_on(gateway, request.device, ref, wanted)
    return handed, commands + more


def _find_blob(gateway: Gateway, device: str, digest: str) -> BlobRef | None:
    task = gateway.tasks.get(device)
    blobs = () if task is None else task.blobs.values()
    return next((ref for ref in blobs if ref.digest == digest), None)


def _fetch_if_missing(gateway: Gateway, ref: BlobRef, now: float) -> Step:
    """Begin to fetch a blob, unless it is here or on its way."""
    if ref.digest in gateway.held or ref.digest in gateway.fetches:
        return gateway, []
    receiving, asks = chunk_transfer.start_transfer(ref, now, pushed=False, least=FAR_PATIENCE_S)
    return _with(gateway, receiving), _commands(gateway, asks)


def _hand_on(gateway: Gateway, device: str, ref: BlobRef, indexes: Iterable[int]) -> Step:
    if ref.digest in gateway.held:
        return gateway, [events.SendChunksBelow(device, ref, index) for index in indexes]
    waiting = gateway.waiting.get(ref.digest, {})
    wanted = waiting.get(device, frozenset()) | frozenset(indexes)
    queue = {**gateway.waiting, ref.digest: {**waiting, device: wanted}}
    return replace(gateway, waiting=queue), []


def take_chunk(gateway: Gateway, chunk: Chunk, now: float) -> Step:
    """Take a chunk from above; raises `PeerError` for one that does not fit its blob."""
    for digest, receiving in gateway.fetches.items():
        if digest.startswith(chunk.prefix):
            taken, commands = chunk_transfer.accept(receiving, chunk, now)
            return _with(gateway, taken), _commands(gateway, commands)
    return gateway, []


def on_verified(gateway: Gateway, event: events.BlobVerified, now: float) -> Step:
    """A blob is complete: hand it on to all who wait for it, or fetch it again."""
    receiving = gateway.fetches.get(event.digest)
    if receiving is None:
        return gateway, []
    if not event.sound:
        again, asks = chunk_transfer.start_transfer(receiving.ref, now, pushed=False, least=FAR_PATIENCE_S)
        return _with(gateway, again), [*_report(gateway, event.digest), *_commands(gateway, asks)]
    fetches = {digest: fetch for digest, fetch in gateway.fetches.items() if digest != event.digest}
    waiting = {digest: queue for digest, queue in gateway.waiting.items() if digest != event.digest}
    commands: list[events.Command] = [
        events.SendChunksBelow(device, receiving.ref, index)
        for device, indexes in gateway.waiting.get(event.digest, {}).items()
        for index in sorted(indexes)
    ]
    held = gateway.held | {event.digest}
    return replace(gateway, fetches=fetches, waiting=waiting, held=held), commands


def on_damaged(gateway: Gateway, digest: str, now: float) -> Step:
    """The file of a blob cannot be read: fetch it again."""
    refs = (ref for task in gateway.tasks.values() for ref in task.blobs.values())
    ref = next((ref for ref in refs if ref.digest == digest), None)
    gateway = replace(gateway, held=gateway.held - {digest})
    return (gateway, []) if ref is None else _fetch_if_missing(gateway, ref, now)


def on_refusal(gateway: Gateway, refusal: messages.Refusal) -> Gateway | None:
    """The blob is not given to the device in whose name it was requested; None if it is not on its way.

    Without another device that needs it, it is no longer fetched.
    """
    digest = refusal.digest
    if digest is None or refusal.reason is not errors.Reason.UNKNOWN_BLOB or digest not in gateway.fetches:
        return None
    tasks = {name: task for name, task in gateway.tasks.items() if name != refusal.device}
    left = replace(gateway, tasks=tasks)
    if _asker(left, digest):
        return left
    fetches = {name: fetch for name, fetch in left.fetches.items() if name != digest}
    return replace(left, fetches=fetches)


def resume(gateway: Gateway, now: float) -> Step:
    return _each(gateway, chunk_transfer.resume, now)


def tick(gateway: Gateway, now: float) -> Step:
    return _each(gateway, chunk_transfer.tick, now) if gateway.linked else (gateway, [])


def _each(gateway: Gateway, ask: Ask, now: float) -> Step:
    commands: list[events.Command] = []
    fetches = dict(gateway.fetches)
    for digest in fetches:
        fetches[digest], asks = ask(fetches[digest], now)
        commands += _commands(gateway, asks)
    return replace(gateway, fetches=fetches), commands


def _with(gateway: Gateway, receiving: Receiving) -> Gateway:
    return replace(gateway, fetches={**gateway.fetches, receiving.ref.digest: receiving})


def _asker(gateway: Gateway, digest: str) -> str:
    """A device in whose name a blob can be requested, connected ones first; empty without any."""
    named = [
        device
        for device, task in gateway.tasks.items()
        if any(ref.digest == digest for ref in task.blobs.values())
    ]
    return next((device for device in named if device in gateway.births), named[0] if named else "")


def _report(gateway: Gateway, digest: str) -> list[events.Command]:
    """Say above that a blob's bytes are not those of its digest: the file there may be damaged."""
    device, why = _asker(gateway, digest), errors.Reason.DIGEST_MISMATCH
    return [
        events.SendAbove(
            messages.Refusal(federation=gateway.federation, device=device, reason=why, digest=digest), device
        )
    ]


def _commands(gateway: Gateway, asks: list[chunk_transfer.TransferCommand]) -> list[events.Command]:
    made: list[events.Command] = []
    for ask in asks:
        match ask:
            case chunk_transfer.RequestChunks(ref):
                device = _asker(gateway, ref.digest)
                if gateway.linked and device:
                    made.append(events.SendAbove(ask.request(gateway.federation, device), device))
            case chunk_transfer.WriteChunk() | chunk_transfer.VerifyBlob():
                made.append(ask)
    return made
