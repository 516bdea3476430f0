"""The groups of a rollout: which devices are in them, and whether the next one opens."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from edge_server.releases.rollout.state import Offering, Rollout, RolloutRules, Words, rounded_up
from edge_server.releases.rollout.target import FAILED, Target, TargetStatus
from edge_server.rounds.fleet import tier_of
from schemas import topics, values
from schemas.messages import ModelOffer, ModelReport, ModelWithdrawal


class ModelOffering(Offering):
    """Models: each device gets the file of its tier."""

    words = Words(
        use="serve",
        uses="serves",
        fetches="fetches tier {tier}",
        compares="compares it with what it runs",
        watch="devices watch the new model for {seconds:g} s before they keep it (--watch)",
        command="edge-server rollout",
    )
    role: topics.Role = "rollout"
    down = topics.Channel.DOWN_ROLLOUT
    offers, withdrawals, reports = ModelOffer, ModelWithdrawal, ModelReport

    def filters(self, federation: str) -> tuple[str, ...]:
        return topics.rollout_filters(federation)

    def tier(self, rollout: Rollout, device: str, profile: values.CapabilityProfile) -> int:
        """The device's stated tier, else that of the version's run, else by memory."""
        return tier_of(profile, max(rollout.files), given=rollout.device_tiers.get(device))

    def stated(self, target: Target) -> dict[str, Any]:
        return {"tier": target.tier}


MODELS = ModelOffering()


Group = tuple[str, ...]


def groups_of(tiers: Mapping[str, int], version: str, *, canary: int, groups: int) -> tuple[Group, ...]:
    """Split the devices with these `tiers` into groups: `canary` of them first, the rest in equal parts.

    Another version has other devices in the canary. Groups contain devices of every tier if they are large
    enough, so that a fault in one tier's model shows early.
    """
    ordered = _in_order(tiers, version)
    first, rest = ordered[:canary], ordered[canary:]
    return tuple(group for group in (first, *_parts(rest, groups)) if group)


def missing_tiers(tiers: Mapping[str, int], group: Iterable[str]) -> tuple[int, ...]:
    """The tiers of devices that have none in this group."""
    return tuple(sorted(set(tiers.values()) - {tiers[device] for device in group}))


def _in_order(tiers: Mapping[str, int], version: str) -> Group:
    """Devices in a reproducible random order; every prefix has about the same share of each tier."""
    of_tier: dict[int, list[str]] = defaultdict(list)
    for device in sorted(tiers, key=lambda name: _lot(name, version)):
        of_tier[tiers[device]].append(device)
    place = {
        device: ((rank + 0.5) / len(devices), _lot(device, version))
        for devices in of_tier.values()
        for rank, device in enumerate(devices)
    }
    return tuple(sorted(tiers, key=place.__getitem__))


def _lot(device: str, version: str) -> str:
    return hashlib.sha256(f"{version}/{device}".encode()).hexdigest()


def _parts(devices: Group, count: int) -> Iterable[Group]:
    size, more = divmod(len(devices), count)
    begin = 0
    for number in range(count):
        end = begin + size + (number < more)
        yield devices[begin:end]
        begin = end


class GroupVerdict(StrEnum):
    """What follows from a group's results."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class GroupStanding:
    """Counts of a group: all devices, those `away` and excluded, those that `kept` the model or `failed`."""

    devices: int
    away: int
    kept: int
    failed: int

    @property
    def counted_devices(self) -> int:
        """The devices that shares refer to."""
        return self.devices - self.away


def count_group(targets: Iterable[Target]) -> GroupStanding:
    statuses = [target.status for target in targets]
    return GroupStanding(
        devices=len(statuses),
        away=statuses.count(TargetStatus.AWAY),
        kept=statuses.count(TargetStatus.KEPT),
        failed=sum(status in FAILED for status in statuses),
    )


def judge(standing: GroupStanding, rules: RolloutRules) -> tuple[GroupVerdict, str]:
    """The group's verdict under the rules, and why.

    Like hawkBit's conditions: success at a share of `success` or more, failure above a share of `error`. In
    addition a group that can no longer succeed has failed, or the rollout would hang.
    """
    counted, failed = standing.counted_devices, standing.failed
    if counted == 0:
        return GroupVerdict.OPEN, ""
    needed = rounded_up(rules.success * counted)
    if failed > rounded_down(rules.most_failures * counted):
        why = f"{failed} of {counted} failed, more than {rules.most_failures:.3g} of the group"
        return GroupVerdict.FAILED, why
    if counted - failed < needed:
        return GroupVerdict.FAILED, f"{failed} of {counted} failed, so {needed} cannot keep it any more"
    if standing.kept >= needed:
        return GroupVerdict.SUCCEEDED, f"{standing.kept} of {counted} kept it"
    return GroupVerdict.OPEN, ""


def rounded_down(number: float) -> int:
    """Round down, tolerating floating-point error: 5% of 20 is 1, not 0."""
    return int(round(number, 9))
