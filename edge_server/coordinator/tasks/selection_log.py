"""From a planning to what is kept of it: who was there, who was chosen, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from edge_server.rounds.events import ExcludedDevice, PlanRound
from edge_server.rounds.fleet import Device
from edge_server.strategy.explanations import MOST_DEVICES, DeviceChoice, RoundChoices
from edge_server.strategy.selection.interface import Explanation

MOST_WORDS = 500


def record_selection(
    command: PlanRound,
    ratios: Mapping[str, float],
    why: Callable[[str], Explanation],
    tier: Callable[[Device], int],
) -> RoundChoices:
    """All that is said of a planning which gives the chosen these `ratios`.

    The chosen come first. Of a planning that adds to a round they are all: who else was there was said by the
    first of the round, and buffered rounds have one planning for every few devices.
    """
    chosen = [device for device in command.devices if device.name in ratios]
    first = command.wanted is None or command.retry == 0
    passed = (one for one in command.devices if first and one.name not in ratios)
    listed = [*chosen, *islice(passed, max(0, MOST_DEVICES - len(chosen)))][:MOST_DEVICES]
    places = dict(zip((device.name for device in chosen), command.places, strict=False))
    told = [
        DeviceChoice(
            device=device.name,
            chosen=device.name in ratios,
            because=_words(reason, places.get(device.name)),
            score=reason.score,
            tier=tier(device),
            ratio=ratios.get(device.name),
        )
        for device, reason in ((device, why(device.name)) for device in listed)
    ]
    told += [_left_out(one, tier) for one in islice(command.left_out, MOST_DEVICES - len(told))]
    return RoundChoices(
        attempt=command.attempt,
        round=command.round,
        devices=tuple(told),
        left_out=max(0, command.known - len(told)),
    )


def _words(why: Explanation, place: str | None) -> str:
    taken = f"takes the place of {place}, which gave its task back; " if place else ""
    return f"{taken}{why.because}"[:MOST_WORDS]


def _left_out(one: ExcludedDevice, tier: Callable[[Device], int]) -> DeviceChoice:
    return DeviceChoice(
        device=one.device.name, chosen=False, because=one.because[:MOST_WORDS], tier=tier(one.device)
    )
