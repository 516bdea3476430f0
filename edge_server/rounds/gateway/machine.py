"""A gateway as a pure state machine: `step(gateway, event, now)` returns the next state and the commands.

What is small passes unchanged in both directions: births, tasks, replies, refusals, telemetry. What is large
stays: blobs are fetched once (`downloads`), updates end here and leave their receipts (`uploads`), and at the
end of a round their sum goes up (`sums`). What is above decides everything device by device, so a gateway
that dies loses nothing but time: devices repeat what was not answered, and so does what is above.
"""

from dataclasses import replace

from edge_server.rounds import events as rounds
from edge_server.rounds.gateway import downloads, events, sums, uploads
from edge_server.rounds.gateway.state import Gateway, Step, without_upload
from schemas import errors, messages
from schemas.base import fields_of, is_of_site
from schemas.messages.message import ServedMessage

MISSED_S = 20.0  # Seconds after its start in which a gateway waits for the devices that were there before
MAX_INSTANCES = 4
BORN_AGAIN_S = 20.0  # Seconds before a gateway repeats a birth that was not answered by terms


def step(gateway: Gateway, event: events.Event, now: float) -> Step:
    """Apply one event; the state is unchanged if it raises `PeerError`.

    That is for a chunk that does not fit its blob, and for what a server says that was replaced.
    """
    if isinstance(event, events.MessageForDevice | events.MessageForSite | events.Announced):
        gateway = _in_epoch(gateway, event.message, now)
    match event:
        case events.LinkedAbove(session):
            return _on_linked(gateway, session, now)
        case events.CutAbove():
            return replace(gateway, linked=False), []
        case events.MessageForDevice():
            return _take_for_device(gateway, event, now)
        case events.MessageForSite():
            return _take_for_site(gateway, event, now)
        case events.Announced():
            return _on_announced(gateway, event)
        case events.DeviceSpoke():
            return _device_spoke(gateway, event, now)
        case rounds.SiteSpoke(site, message):
            return _site_below_spoke(gateway, site, message, now)
        case events.ChunkFromAbove(chunk):
            return downloads.take_chunk(gateway, chunk, now)
        case rounds.ChunkReceived(device, chunk):
            return uploads.take_chunk(gateway, device, chunk, now)
        case rounds.SiteChunkReceived(site, chunk):
            return sums.take_chunk(gateway, site, chunk, now)
        case events.BlobVerified():
            return downloads.on_verified(gateway, event, now)
        case rounds.SumChecked():
            return sums.part_checked(gateway, event)
        case events.UpdateExamined():
            return uploads.on_examined(gateway, event, now)
        case events.SumMade():
            return sums.on_made(gateway, event)
        case rounds.Tick():
            return _tick(gateway, now)


def _on_linked(gateway: Gateway, session: int, now: float) -> Step:
    """Tell what is above that the gateway is there, who is here, and what was not answered."""
    linked = replace(gateway, linked=True, session=session, answered=False, born_at=now + BORN_AGAIN_S)
    births = [events.SendAbove(birth, device) for device, birth in gateway.births.items()]
    if gateway.missed_at is None:
        linked = replace(linked, missed_at=now + MISSED_S)
    resumed, asks = downloads.resume(linked, now)
    return resumed, [_birth(resumed), *births, *uploads.repeat_receipts(linked), *asks]


def _birth(gateway: Gateway) -> events.Command:
    return events.SendAbove(
        messages.SiteBirth(federation=gateway.federation, site=gateway.site, session=gateway.session)
    )


def _born_again(gateway: Gateway, now: float) -> Step:
    """Repeat a birth that was not answered: it may be lost, or the terms that answer it."""
    if gateway.answered or not gateway.linked or now < gateway.born_at:
        return gateway, []
    return replace(gateway, born_at=now + BORN_AGAIN_S), [_birth(gateway)]


# --- from above ---
def _in_epoch(gateway: Gateway, message: messages.Message, now: float) -> Gateway:
    """Remember the message's epoch; raises `PeerError` if a newer one of its run is known."""
    run = getattr(message, "run", None)
    if run is None or not isinstance(message, ServedMessage):
        return gateway
    epoch, newest = message.epoch or 0, gateway.epochs.get(run, 0)
    if epoch < newest:
        why = f"by a server that was replaced: its epoch is {epoch}, not {newest}"
        raise errors.PeerError(f"'{message.kind}' of run {run} {why}", reason=errors.Reason.SUPERSEDED)
    if epoch == newest:
        return gateway
    later = replace(gateway, epochs={**gateway.epochs, run: epoch})
    if gateway.terms is None or gateway.terms.run != run:
        return later
    # Another server has taken over: sites below refuse the terms of the one before.
    return replace(later, answered=False, born_at=now + BORN_AGAIN_S)


def _take_for_device(gateway: Gateway, event: events.MessageForDevice, now: float) -> Step:
    device, message = event.device, event.message
    match message:
        case messages.TrainTask() | messages.DeliverTask():
            return _task_given(gateway, device, message, now)
        case messages.BlobRequest() if uploads.is_here(gateway, message):
            ref = gateway.updates[device].sent_blob
            assert ref is not None
            return gateway, [events.SendChunksAbove(ref, message.first, message.count, device)]
        case messages.Refusal() if (left := downloads.on_refusal(gateway, message)) is not None:
            return downloads.resume(left, now)
        case messages.Acknowledgement() | messages.Refusal():
            return uploads.on_answer(gateway, message), [rounds.Send(device, message)]
        case _:
            return gateway, [rounds.Send(device, message)]


def _task_given(gateway: Gateway, device: str, task: messages.Task, now: float) -> Step:
    last = gateway.tasks.get(device)
    overtaken = last is not None and last.run == task.run and task.attempt < last.attempt
    if overtaken or task.excess():
        return gateway, [rounds.Send(device, task)]  # the device declines one with an excess
    new = last is None or (last.run, last.attempt) != (task.run, task.attempt)
    gateway = replace(gateway, tasks={**gateway.tasks, device: task})
    if new:
        gateway = without_upload(gateway, device)
    remember: list[events.Command] = [events.RememberTask(device, task)] if new else []
    fetching, commands = downloads.task_given(gateway, device, task, now, new=new)
    return fetching, [*remember, rounds.Send(device, task), *commands]


def _take_for_site(gateway: Gateway, event: events.MessageForSite, now: float) -> Step:
    match event.message:
        case messages.SiteTerms() as terms:
            below = replace(gateway, terms=terms, answered=True)
            return below, [_terms_for(below, site) for site in below.sites]
        case messages.SumRequest() as request:
            return sums.on_request(gateway, request, now)
        case messages.BlobRequest() as request:
            return gateway, [sums.give_chunks(gateway, request)]
        case messages.Refusal():
            return gateway, []


def _terms_for(gateway: Gateway, site: str) -> events.Command:
    assert gateway.terms is not None
    return rounds.SendToSite(site, gateway.terms.model_copy(update={"site": site}))


def _on_announced(gateway: Gateway, event: events.Announced) -> Step:
    """Pass the announcement on; forget the updates of rounds that are over."""
    message = event.message
    oldest = message.oldest if isinstance(message, messages.RoundAnnouncement) else message.rounds + 1
    updates = {
        device: update
        for device, update in gateway.updates.items()
        if update.run == message.run and update.round >= oldest
    }
    tasks = {} if isinstance(message, messages.FederationEnd) else _open_tasks(gateway, message)
    kept = replace(gateway, updates=updates, tasks=tasks, pending=gateway.pending & updates.keys())
    if gateway.terms is not None and gateway.terms.run != message.run:
        kept = replace(kept, answered=False)
    if len(updates) < len(gateway.updates):
        kept = replace(kept, sums={})
    kept = replace(kept, held=kept.held & kept.in_use())
    return kept, [rounds.Announce(message), events.Forget(message.run, oldest)]


def _open_tasks(gateway: Gateway, message: messages.RoundAnnouncement) -> dict[str, messages.Task]:
    """The tasks of rounds that are not over, and of the last one, as the next one needs some of its blobs."""
    tasks = {device: task for device, task in gateway.tasks.items() if task.run == message.run}
    last = max((task.attempt for task in tasks.values()), default=0)
    return {
        device: task for device, task in tasks.items() if task.round >= message.oldest or task.attempt == last
    }


# --- from below ---
def _device_spoke(gateway: Gateway, event: events.DeviceSpoke, now: float) -> Step:
    message = event.message
    match message:
        case messages.Birth():
            return _born(gateway, message)
        case messages.Death():
            return _on_death(gateway, message)
        case messages.TaskReply():
            return _on_reply(gateway, message)
        case messages.Update():
            return uploads.on_claim(gateway, message, event, now)
        case messages.BlobRequest():
            handed = downloads.on_request(gateway, message, now)
            return handed or (gateway, [events.SendAbove(message, message.device)])
        case messages.BroadcastProgress():
            return gateway, []
        case messages.Refusal() if (left := _refused_by_device(gateway, message, now)) is not None:
            return left
        case _:
            return gateway, [events.SendAbove(message, message.device)]


def _born(gateway: Gateway, birth: messages.Birth) -> Step:
    heard, current = gateway.heard.get(birth.device, {}), gateway.births.get(birth.device)
    known = heard.get(birth.instance, 0)
    another = current is not None and current.instance != birth.instance
    if birth.session < known or (another and birth.session == known):
        # Above it would look as if a second device had the name.
        return gateway, []
    later = dict(list({**heard, birth.instance: birth.session}.items())[-MAX_INSTANCES:])
    births = {**gateway.births, birth.device: birth}
    born = replace(gateway, births=births, heard={**gateway.heard, birth.device: later})
    return born, _pass_on(gateway, birth)


def _pass_on(gateway: Gateway, message: messages.FromDevice) -> list[events.Command]:
    """Births and deaths wait for a connection above."""
    return [events.SendAbove(message, message.device)] if gateway.linked else []


def _on_death(gateway: Gateway, death: messages.Death) -> Step:
    known = gateway.births.get(death.device)
    if known is not None and death.session < known.session:
        return gateway, []
    births = {device: birth for device, birth in gateway.births.items() if device != death.device}
    return replace(gateway, births=births), _pass_on(gateway, death)


def _on_reply(gateway: Gateway, reply: messages.TaskReply) -> Step:
    """What is broadcast above does not reach the site: the device requests it here."""
    if not reply.listens:
        return gateway, [events.SendAbove(reply, reply.device)]
    task = gateway.tasks.get(reply.device)
    shared = [] if task is None else [task.blobs[name].digest for name in task.channels]
    about = fields_of(reply, "federation", "device", "run", "attempt")
    end = messages.BroadcastEnd(**about, digests=tuple(dict.fromkeys(shared))[:256])
    passed = reply.model_copy(update={"listens": ()})
    return gateway, [events.SendAbove(passed, reply.device), rounds.Send(reply.device, end)]


def _refused_by_device(gateway: Gateway, refusal: messages.Refusal, now: float) -> Step | None:
    """A device has lost its update, or a blob that it got here is damaged; None for anything else."""
    if refusal.reason is errors.Reason.DIGEST_MISMATCH and refusal.digest in gateway.held:
        return downloads.on_damaged(gateway, refusal.digest, now)
    return uploads.on_lost(gateway, refusal)


def _site_below_spoke(gateway: Gateway, site: str, message: messages.FromSite, now: float) -> Step:
    match message:
        case messages.SiteBirth(session=session):
            heard = replace(gateway, sessions={**gateway.sessions, site: session})
            terms = [_terms_for(gateway, site)] if gateway.terms is not None else []
            back, asks = sums.site_back(heard, site, now)
            return back, [*terms, *asks]
        case messages.SiteDeath(session=session) if session >= gateway.sessions.get(site, 0):
            return _site_died(gateway, site)
        case messages.SiteSum():
            return sums.take_part(gateway, site, message, now)
        case messages.Refusal():
            return sums.part_lost(gateway, site, message)
        case _:
            return gateway, []


def _site_died(gateway: Gateway, site: str) -> Step:
    """With the gateway of a site all its devices are gone."""
    commands: list[events.Command] = []
    for device, birth in list(gateway.births.items()):
        if is_of_site(device, site):
            death = messages.Death(federation=gateway.federation, device=device, session=birth.session)
            gateway, more = _on_death(gateway, death)
            commands += more
    return gateway, commands


def _report_missed(gateway: Gateway, now: float) -> Step:
    if not gateway.before or not gateway.linked or now < (gateway.missed_at or 0.0):
        return gateway, []
    gone: list[events.Command] = [
        events.SendAbove(
            messages.Death(federation=gateway.federation, device=device, session=session), device
        )
        for device, session in gateway.before.items()
        if device not in gateway.births
    ]
    return replace(gateway, before={}), gone


def _tick(gateway: Gateway, now: float) -> Step:
    commands: list[events.Command] = []
    for tick in (downloads.tick, uploads.tick, sums.tick, _report_missed, _born_again):
        gateway, more = tick(gateway, now)
        commands += more
    return gateway, commands
