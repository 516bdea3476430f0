"""The record of a planning: which devices were present, which were chosen, and why."""

from collections.abc import Callable, Mapping
from itertools import islice

from edge_server.rounds.events import ExcludedDevice, PlanRound
from edge_server.rounds.fleet import Device
from edge_server.strategy.explanations import MAX_DEVICES, DeviceChoice, RoundChoices
from edge_server.strategy.selection.interface import Explanation

MAX_REASON_CHARS = 500


def record_selection(
    command: PlanRound,
    ratios: Mapping[str, float],
    why: Callable[[str], Explanation],
    tier: Callable[[Device], int],
) -> RoundChoices:
    """Record a planning; `ratios` has the chosen devices.

    The chosen come first. A planning that adds devices to a round records the chosen only, since the round's
    first planning has the others.
    """
    chosen = [device for device in command.devices if device.name in ratios]
    first = command.wanted is None or command.retry == 0
    passed = (device for device in command.devices if first and device.name not in ratios)
    listed = [*chosen, *islice(passed, max(0, MAX_DEVICES - len(chosen)))][:MAX_DEVICES]
    replaced = dict(zip((device.name for device in chosen), command.places, strict=False))
    recorded = [
        DeviceChoice(
            device=device.name,
            chosen=device.name in ratios,
            because=_reason(explanation, replaced.get(device.name)),
            score=explanation.score,
            tier=tier(device),
            ratio=ratios.get(device.name),
        )
        for device, explanation in ((device, why(device.name)) for device in listed)
    ]
    excluded = islice(command.left_out, MAX_DEVICES - len(recorded))
    recorded += [_describe_excluded(device, tier) for device in excluded]
    return RoundChoices(
        attempt=command.attempt,
        round=command.round,
        devices=tuple(recorded),
        left_out=max(0, command.known - len(recorded)),
    )


def _reason(explanation: Explanation, replaced: str | None) -> str:
    prefix = f"takes the place of {replaced}, which gave its task back; " if replaced else ""
    return f"{prefix}{explanation.because}"[:MAX_REASON_CHARS]


def _describe_excluded(excluded: ExcludedDevice, tier: Callable[[Device], int]) -> DeviceChoice:
    device, because = excluded.device, excluded.because[:MAX_REASON_CHARS]
    return DeviceChoice(device=device.name, chosen=False, because=because, tier=tier(device))
