"""A rollout as a pure state machine, modelled on Eclipse hawkBit: groups open one after the other.

    gathering (until devices are there) -> running (group by group) -> finished
                                                     | too many failures
                                                     v
                                               stopping (every device that switched goes back) -> stopped

No socket, clock or thread: `step(rollout, event, now)` returns the next state and the commands to carry out.
Messages to and from devices may be repeated, late or lost: a device is asked until it reports something
final.
"""

from dataclasses import replace

from edge_server.releases.rollout import state
from edge_server.releases.rollout.groups import GroupVerdict, count_group, groups_of, judge
from edge_server.releases.rollout.target import (
    ASK_AGAIN_S,
    CHECK_UP_S,
    LOADING,
    REACHED,
    UNDER_WAY,
    Report,
    Target,
    TargetStatus,
    accepts,
)
from edge_server.rounds.fleet import Device
from schemas.messages import Birth, BlobRequest, ClientReport, Death, ModelReport


def step(rollout: state.Rollout, event: state.Event, now: float) -> state.Step:
    if rollout.over:
        return rollout, []
    match event:
        case state.Connected(chunk_bytes):
            return settle(_on_connected(rollout, chunk_bytes, now), now)
        case state.MessageReceived(message):
            return _on_message(rollout, message, now)
        case state.Withdrawn(why):
            return settle(stop_rollout(rollout, why, now), now)
        case state.Tick():
            return settle(rollout, now)


def _on_connected(rollout: state.Rollout, chunk_bytes: int, now: float) -> state.Rollout:
    files = {
        tier: state.TierFile(file.ref.model_copy(update={"chunk_bytes": chunk_bytes}), file.manifest)
        for tier, file in rollout.files.items()
    }
    until = now + rollout.rules.gather_s if rollout.gather_until is None else rollout.gather_until
    return replace(rollout, files=files, gather_until=until)


# --- what devices say ---
def _on_message(
    rollout: state.Rollout, message: Birth | Death | Report | BlobRequest, now: float
) -> state.Step:
    match message:
        case Birth():
            return settle(_born(rollout, message, now), now)
        case Death():
            return replace(rollout, fleet=rollout.fleet.with_death(message, now)), []
        case ModelReport() | ClientReport():
            return settle(_on_report(rollout, message, now), now)
        case BlobRequest():
            return rollout, _chunks(rollout, message)


def _born(rollout: state.Rollout, birth: Birth, now: float) -> state.Rollout:
    """A device connects: one with an unfinished update is asked at once, a new one joins the last group."""
    if not rollout.fleet.has_room_for(birth.device):
        return rollout
    known = rollout.fleet.devices.get(birth.device)
    rollout = replace(rollout, fleet=rollout.fleet.born(birth))
    target = rollout.targets.get(birth.device)
    if target is None:
        return _add_latecomer(rollout, birth, now) if rollout.phase is state.RolloutPhase.RUNNING else rollout
    back = known is None or not known.alive or birth.session > known.session
    if target.status is TargetStatus.AWAY:
        return rollout.with_target(_waiting(rollout, replace(target, status=TargetStatus.WAITING), now))
    return rollout.with_target(replace(target, ask_at=now)) if back else rollout


def _add_latecomer(rollout: state.Rollout, birth: Birth, now: float) -> state.Rollout:
    tier = rollout.tier(birth.device, birth.profile)
    late = Target(birth.device, tier, max(0, rollout.groups - 1))
    meant = rollout.rules.are_for(birth.device) and not rollout.fleet.devices[birth.device].outside
    wanted = tier in rollout.files and meant
    return rollout.with_target(_waiting(rollout, late, now)) if wanted else rollout


def _on_report(rollout: state.Rollout, report: Report, now: float) -> state.Rollout:
    target = rollout.targets.get(report.device)
    if target is None or report.rollout != rollout.id or not accepts(target, report):
        return rollout
    status = REACHED[report.stage]
    further = replace(target, status=status, report=report, ask_at=now + CHECK_UP_S)
    return rollout.with_target(replace(further, deadline=now + rollout.rules.patience_s(status)))


def _chunks(rollout: state.Rollout, request: BlobRequest) -> list[state.Command]:
    """Chunks of the file of the device's own tier; other requests are ignored."""
    target = rollout.targets.get(request.device)
    if target is None or rollout.phase is not state.RolloutPhase.RUNNING or target.group > rollout.opened:
        return []
    ref = rollout.files[target.tier].ref
    known = request.digest == ref.digest and request.first < ref.chunks
    return [state.SendChunks(request.device, ref, request.first, request.count)] if known else []


def _waiting(rollout: state.Rollout, target: Target, now: float) -> Target:
    return replace(target, ask_at=0.0, deadline=now + rollout.rules.away_s)


# --- what the state requires ---
def settle(rollout: state.Rollout, now: float) -> state.Step:
    """Do what is due: form the groups, ask devices, give up on silent ones, judge groups, end."""
    if rollout.phase is state.RolloutPhase.GATHERING:
        rollout = _form_groups(rollout, now)
    commands: list[state.Command] = []
    if rollout.phase is state.RolloutPhase.RUNNING:
        rollout = _judge_groups(_overdue(rollout, now), now)
    if rollout.phase is state.RolloutPhase.RUNNING:
        rollout, commands = _offer_version(rollout, now)
    if rollout.phase is state.RolloutPhase.STOPPING:
        rollout, commands = _withdrawing(rollout, now)
    return rollout, commands


def eligible(rollout: state.Rollout) -> tuple[Device, ...]:
    """The connected devices that the rollout is for and whose tier has a file."""
    there = (device for device in rollout.fleet.alive() if not device.outside)
    meant = (device for device in there if rollout.rules.are_for(device.name))
    return tuple(device for device in meant if rollout.tier(device.name, device.profile) in rollout.files)


def _form_groups(rollout: state.Rollout, now: float) -> state.Rollout:
    """Form the groups once enough devices are connected."""
    there = eligible(rollout)
    if rollout.gather_until is None or now < rollout.gather_until or len(there) < rollout.rules.expect:
        return rollout
    tiers = {device.name: rollout.tier(device.name, device.profile) for device in there}
    canary = rollout.rules.canary_of(len(tiers))
    groups = groups_of(tiers, rollout.version, canary=canary, groups=rollout.rules.groups)
    targets = {
        device: _waiting(rollout, Target(device, tiers[device], number), now)
        for number, group in enumerate(groups)
        for device in group
    }
    return replace(rollout, phase=state.RolloutPhase.RUNNING, targets=targets, opened=0)


def _overdue(rollout: state.Rollout, now: float) -> state.Rollout:
    """Devices past their deadline are silent if they may use the new version, else away."""
    for target in _open(rollout):
        queueing = target.status is TargetStatus.WAITING and rollout.alive(target.device)
        if not (target.is_settled or queueing) and now >= target.deadline:
            served = target.status in (TargetStatus.SWITCHING, TargetStatus.WATCHING)
            status = TargetStatus.SILENT if served else TargetStatus.AWAY
            rollout = rollout.with_target(replace(target, status=status))
    return rollout


def _open(rollout: state.Rollout) -> tuple[Target, ...]:
    return tuple(target for target in rollout.targets.values() if target.group <= rollout.opened)


def _judge_groups(rollout: state.Rollout, now: float) -> state.Rollout:
    """Stop, open the next group, or finish, by the verdicts on the open groups."""
    for number in range(rollout.opened + 1):
        verdict, why = judge(count_group(rollout.group(number)), rollout.rules)
        if verdict is GroupVerdict.FAILED:
            return stop_rollout(rollout, f"{group_name(number)}: {why}", now)
    if verdict is not GroupVerdict.SUCCEEDED:
        return rollout
    if rollout.opened + 1 < rollout.groups:
        waiting = [_waiting(rollout, target, now) for target in rollout.group(rollout.opened + 1)]
        opened = replace(rollout, opened=rollout.opened + 1)
        return replace(opened, targets={**opened.targets, **{target.device: target for target in waiting}})
    done = all(target.is_settled for target in rollout.targets.values())
    return replace(rollout, phase=state.RolloutPhase.FINISHED) if done else rollout


def group_name(number: int) -> str:
    """`canary` for group 0, else `group N`."""
    return "canary" if number == 0 else f"group {number}"


def _offer_version(rollout: state.Rollout, now: float) -> state.Step:
    """Offer the version to the devices that are due, with at most `at_once` fetching it."""
    commands: list[state.Command] = []
    loading = sum(target.status in LOADING for target in rollout.targets.values())
    for target in _open(rollout):
        if not rollout.alive(target.device) or now < target.ask_at:
            continue
        if target.status is TargetStatus.WAITING and loading < rollout.rules.at_once:
            loading += 1
            target = replace(target, status=TargetStatus.ASKED, deadline=now + rollout.rules.away_s)
        if target.status in UNDER_WAY or target.status is TargetStatus.SILENT:
            patience = ASK_AGAIN_S if target.status is TargetStatus.ASKED else CHECK_UP_S
            rollout = rollout.with_target(replace(target, ask_at=now + patience))
            commands.append(state.SendMessage(target.device, rollout.offering.offer(rollout, target)))
    return rollout, commands


# --- stopping ---
def stop_rollout(rollout: state.Rollout, why: str, now: float) -> state.Rollout:
    """Open no more groups, and withdraw the version from every device that may use it."""
    if rollout.phase is state.RolloutPhase.STOPPING:
        return rollout
    at_once = [replace(target, ask_at=now) for target in rollout.targets.values()]
    return replace(
        rollout,
        phase=state.RolloutPhase.STOPPING,
        why=why,
        stop_until=now + rollout.rules.silent_s,
        targets={target.device: target for target in at_once},
    )


def _withdrawing(rollout: state.Rollout, now: float) -> state.Step:
    """Send withdrawals until every device that may use the new version has gone back."""
    targets = rollout.targets.values()
    affected = [target for target in targets if target.status in UNDER_WAY or target.may_serve]
    awaited = [target for target in affected if target.may_serve or rollout.alive(target.device)]
    commands: list[state.Command] = []
    for target in affected:
        if rollout.alive(target.device) and now >= target.ask_at:
            rollout = rollout.with_target(replace(target, ask_at=now + ASK_AGAIN_S))
            commands.append(state.SendMessage(target.device, rollout.offering.withdrawal(rollout, target)))
    if not awaited or now >= rollout.stop_until:
        return replace(rollout, phase=state.RolloutPhase.STOPPED), commands
    return rollout, commands
