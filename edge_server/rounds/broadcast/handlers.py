"""Connects a federation's broadcast to its devices: who listens, and who must request the rest."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from edge_server.rounds.broadcast import pacing
from edge_server.rounds.events import Command, Publish, Send
from edge_server.rounds.participant import Participant, Status
from edge_server.rounds.state import Federation, Phase, Step
from schemas.messages import BroadcastEnd, BroadcastProgress, TaskReply


def start_broadcast(federation: Federation, participants: Iterable[Participant], now: float) -> Federation:
    """Start the broadcast of the blobs that the offered tasks share, if they share any."""
    tasks = (participant.assignment.task for participant in participants)
    return replace(federation, broadcast=pacing.plan_broadcast(tasks, now))


def handle_reply(federation: Federation, reply: TaskReply, participant: Participant, now: float) -> Step:
    """A device has answered: if it listens, it must request what was published before."""
    task, current = participant.assignment.task, federation.broadcast
    if not reply.accepted or not reply.listens:
        # A device that reconnects requests what it lacks.
        return replace(federation, broadcast=current and pacing.drop_followers(current, [reply.device])), []
    listens = {name: n for name, n in task.channels.items() if n in reply.listens}
    digests = [task.blobs[name].digest for name in listens]
    if current is None or (current.run, current.attempt) != (task.run, task.attempt):
        return federation, _end(federation, participant, digests)
    coming = {part.ref.digest for part in current.ranges[current.next :]}
    past = [digest for digest in digests if digest not in coming] if current.begun else []
    if reply.device not in current.followers:
        current = pacing.add_follower(current, reply.device, listens.values(), now)
    return replace(federation, broadcast=current), _end(federation, participant, past)


def handle_progress(federation: Federation, message: BroadcastProgress, now: float) -> Step:
    current = federation.broadcast
    if current is None or (current.run, current.attempt) != (message.run, message.attempt):
        return federation, []
    further = pacing.record_progress(current, message.device, message.digest, message.index, now)
    return replace(federation, broadcast=further), []


def settle(federation: Federation, now: float) -> Step:
    current = federation.broadcast
    if current is None or current.over:
        return federation, []
    if federation.phase not in (Phase.TRAINING, Phase.DELIVERING) or current.attempt != federation.attempt:
        return replace(federation, broadcast=None), []
    if not current.begun:
        nobody_open = not federation.participants.count({Status.OFFERED})
        if not current.may_begin(now, answered=nobody_open):
            return federation, []
        current = pacing.begin(current, now)
    if pacing.is_held_up(current, now) and _is_there(federation, current.awaits):
        return federation, []
    commands: list[Command] = []
    while not current.over:
        if waited_for := pacing.lagging_followers(current):
            followers = current.followers
            current, more = _give_up(federation, current, waited_for, now)
            commands += more
            if current.followers == followers:
                current = replace(current, awaits=waited_for[0])
                break
        else:
            current, part = pacing.publish_next(current, now)
            listeners = tuple(_listeners(federation, current, part.channel))
            commands.append(
                Publish(part.channel, part.ref, part.first, part.count, current.attempt, listeners)
            )
    return replace(federation, broadcast=current), commands


def _give_up(
    federation: Federation, current: pacing.Broadcast, waited_for: tuple[str, ...], now: float
) -> tuple[pacing.Broadcast, list[Command]]:
    """Drop the followers that are gone, done, or stalled."""
    commands: list[Command] = []
    gone = [name for name in waited_for if not _is_there(federation, name)]
    late = pacing.stalled_followers(current, (name for name in waited_for if name not in gone), now)
    for name in (*gone, *late):
        participant = federation.participants.get(name)
        if participant is not None:
            digests = [ref.digest for ref in participant.assignment.task.blobs.values()]
            commands += _end(federation, participant, digests)
    return pacing.drop_followers(current, (*gone, *late)), commands


def _listeners(federation: Federation, current: pacing.Broadcast, channel: int) -> Iterator[str]:
    for name, follower in current.followers.items():
        known = federation.fleet.devices.get(name)
        if channel in follower.channels and known is not None and known.alive:
            yield name


def _is_there(federation: Federation, device: str) -> bool:
    known, participant = federation.fleet.devices.get(device), federation.participants.get(device)
    return known is not None and known.alive and participant is not None and not participant.final


def _end(federation: Federation, participant: Participant, digests: list[str]) -> list[Command]:
    if not digests:
        return []
    task = participant.assignment.task
    end = BroadcastEnd(
        federation=federation.name,
        device=participant.device,
        run=task.run,
        attempt=task.attempt,
        digests=tuple(digests[:256]),
    )
    return [Send(participant.device, end)]
