"""A rollout's progress as lines of text or JSON: each change once."""

import json
import time
from collections.abc import Iterator
from typing import Any, TextIO

from edge_client.system.plain_text import say
from edge_server.config.units import clean, clock_text, leading_text, names_text, number_text
from edge_server.releases.rollout.groups import MODELS, GroupVerdict, count_group, judge, missing_tiers
from edge_server.releases.rollout.machine import eligible, group_name
from edge_server.releases.rollout.state import Rollout, RolloutPhase, Words
from edge_server.releases.rollout.target import Target, TargetStatus
from schemas.base import fields_of
from schemas.messages import ClientReport

QUIET = frozenset({TargetStatus.WAITING, TargetStatus.ASKED, TargetStatus.SWITCHING})
"""Statuses that are too short-lived to be shown."""


class Progress:
    """Writes lines to a stream; `as_json`: one JSON object per line."""

    def __init__(self, stream: TextIO, *, as_json: bool = False) -> None:
        self._stream, self._as_json = stream, as_json
        self._last: Rollout | None = None
        self._no_link, self._waits = "", ""
        self._began: float | None = None

    def mark_shown(self, rollout: Rollout) -> None:
        """Treat this state as already shown."""
        self._last = rollout

    def show(self, rollout: Rollout, no_link: str) -> None:
        before, self._last = self._last, rollout
        if no_link != self._no_link:
            self._no_link = no_link
            self._write("link", no_link or "connected")
        waits = "" if no_link else waiting_for(rollout, time.monotonic())
        if waits != self._waits:
            self._waits = waits
            if waits:
                self._write("waiting", waits)
            elif back := [] if no_link or before is None else _returned(before, rollout):
                self._write("waiting", f"{names_text(back)}: online again")
        if before is rollout:
            return
        for target in _changed_targets(before, rollout):
            fields = {"device": target.device, "status": str(target.status), "group": target.group}
            report = None if target.report is None else target.report.model_dump(mode="json")
            self._write("device", target_line(target, rollout.offering.words), **fields, report=report)
        for text in _moves(before, rollout):
            self._write("rollout", text, phase=str(rollout.phase))

    def _write(self, about: str, text: str, **more: Any) -> None:
        self._began = time.monotonic() if self._began is None else self._began
        if self._as_json:
            line = json.dumps({"about": about, "text": text, **more})
        else:
            line = f"{clock_text(time.monotonic() - self._began):>7}  {text}"
        say(line, file=self._stream, flush=True)


def waiting_for(rollout: Rollout, now: float) -> str:
    """Which devices the rollout waits for, in words; empty if it does not wait."""
    if rollout.gather_until is None or now < rollout.gather_until:
        return ""  # births may be on their way, also to a rollout that is continued
    if rollout.phase is RolloutPhase.GATHERING:
        there, expected = len(eligible(rollout)), rollout.rules.expect
        if there >= expected:
            return ""
        nobody = "no device that is chosen is" if any(rollout.fleet.alive()) else "no device is"
        found = f"{there} of {expected} devices are" if there else nobody
        return f"{found} online: waiting"
    if rollout.phase is not RolloutPhase.RUNNING:
        return ""
    open_group = rollout.group(rollout.opened)
    group = [target for target in open_group if not target.is_settled or target.status is TargetStatus.AWAY]
    absent = [target.device for target in group if _is_absent(rollout, target)]
    return f"waiting for {names_text(absent)}: offline" if group and len(absent) == len(group) else ""


def _is_absent(rollout: Rollout, target: Target) -> bool:
    """A device that is silent may be dead, although the broker still has its birth."""
    return target.status is TargetStatus.AWAY or not rollout.alive(target.device)


def _returned(before: Rollout, now: Rollout) -> list[str]:
    absent = (name for name, target in before.targets.items() if _is_absent(before, target))
    return sorted(name for name in absent if not _is_absent(now, now.targets[name]))


def _changed_targets(before: Rollout | None, now: Rollout) -> Iterator[Target]:
    known = {} if before is None else before.targets
    for name, target in sorted(now.targets.items()):
        was = known.get(name)
        if target.status not in QUIET and (was is None or was.status is not target.status):
            yield target


def target_line(target: Target, words: Words = MODELS.words) -> str:
    """A device's status, with its measurements."""
    report, device = target.report, clean(target.device)
    detail = f": {clean(report.detail)}" if report is not None and report.detail else ""
    match target.status:
        case TargetStatus.FETCHING:
            return f"{device} {words.fetches.format(tier=target.tier)}"
        case TargetStatus.COMPARING:
            return f"{device} {words.compares}"
        case TargetStatus.WATCHING:
            return f"{device} has switched: {comparison_text(target)}"
        case TargetStatus.KEPT if target.had_it:
            return f"{device} {words.uses} it already"
        case TargetStatus.SILENT:
            return f"{device} is silent since it switched"
        case TargetStatus.AWAY:
            return f"{device} is away, and excluded from its group"
        case _:
            cause = f" ({report.cause})" if report is not None and report.cause is not None else ""
            return f"{device} {_VERBS.get(target.status, target.status)}{cause}{detail}"


_VERBS = {
    TargetStatus.KEPT: "keeps it",
    TargetStatus.REFUSED: "refuses it",
    TargetStatus.ROLLED_BACK: "has gone back",
}


def comparison_text(target: Target) -> str:
    """The device's measurements of its earlier model and of the new one, or the version of its client."""
    if isinstance(target.report, ClientReport):
        return f"{clean(target.report.running)} before"
    if target.report is None or target.report.candidate is None:
        return "nothing was measured"
    old, new = target.report.running, target.report.candidate
    text = f"{leading_text(new.metrics)} of {new.examples} examples, {number_text(new.latency_ms)} ms"
    if old is None:
        return f"{text}; it ran none before"
    return f"{leading_text(old.metrics)} -> {text}, before {number_text(old.latency_ms)} ms"


def _moves(before: Rollout | None, now: Rollout) -> Iterator[str]:
    phase = RolloutPhase.GATHERING if before is None else before.phase
    if phase is RolloutPhase.GATHERING and now.phase is not RolloutPhase.GATHERING:
        yield from _groups(now)
    opened = before.opened if before is not None and phase is not RolloutPhase.GATHERING else now.opened
    for number in range(opened, now.opened):
        why = judge(count_group(now.group(number)), now.rules)[1]
        yield f"{group_name(number)}: {why}; {group_name(number + 1)} is open"
    if phase is now.phase:
        return
    if now.phase is RolloutPhase.STOPPING:
        yield f"stopping: {now.why}"
    if now.phase is RolloutPhase.FINISHED:
        yield f"finished: {_outcome(now)}"
    if now.phase is RolloutPhase.STOPPED:
        yield f"stopped: {now.why}" if now.why else "stopped"
        if now.left_with_it:
            yield f"may still {now.offering.words.use} it: {names_text(now.left_with_it)}"


def _groups(rollout: Rollout) -> Iterator[str]:
    tiers = {name: target.tier for name, target in rollout.targets.items()}
    for number in range(rollout.groups):
        names = [target.device for target in rollout.group(number)]
        yield f"{group_name(number)}: {len(names)} of {len(tiers)} devices: {names_text(names)}"
    if missing := missing_tiers(tiers, (target.device for target in rollout.group(0))):
        listed = ", ".join(str(tier) for tier in missing)
        yield f"the canary has no device of tier {listed}: only later groups test their models"
    yield rollout.offering.words.watch.format(seconds=rollout.rules.terms.watch_s)


def _outcome(rollout: Rollout) -> str:
    standing = count_group(rollout.targets.values())
    parts = [f"{standing.kept} of {standing.devices} devices {rollout.offering.words.use} {rollout.version}"]
    parts += [f"{standing.failed} do not"] if standing.failed else []
    parts += [f"{standing.away} were away"] if standing.away else []
    return ", ".join(parts)


def summary(rollout: Rollout) -> dict[str, Any]:
    """The outcome of a rollout, for programs."""
    groups = []
    for number in range(rollout.groups):
        standing = count_group(rollout.group(number))
        verdict, why = judge(standing, rollout.rules)
        groups.append(
            {
                "name": group_name(number),
                **fields_of(standing, "devices", "kept", "failed", "away"),
                "opened": number <= rollout.opened,
                "verdict": str(verdict) if number <= rollout.opened else str(GroupVerdict.OPEN),
                "why": why,
            }
        )
    return {
        "rollout": rollout.id,
        "version": rollout.version,
        "outcome": str(rollout.phase),
        "why": rollout.why,
        "groups": groups,
        "devices": {name: str(target.status) for name, target in sorted(rollout.targets.items())},
    }
