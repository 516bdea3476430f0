"""A run as plain lines for pipes and logs: one line per change since the last snapshot."""

from collections.abc import Iterator
from typing import Self, TextIO

from rich.console import Console

from edge_client.system.plain_text import say
from edge_server.config import units
from edge_server.observability.figures import leading_metric, measured_text
from edge_server.observability.snapshot import DeviceView, Snapshot, round_text
from edge_server.observability.terminal.final_summary import fleet_line, is_large_fleet, print_closing
from edge_server.observability.terminal.tables import epsilon_text, late_text, trouble_text
from edge_server.storage.records import RoundRecord

OFFLINE = "offline"
BRIEF = frozenset({"starting", "planning", "aggregating"})  # Short phases that get no line
CLOSING_WIDTH = 120


class PlainDisplay:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: Snapshot | None = None

    def __enter__(self) -> Self:
        return self

    def show(self, snapshot: Snapshot) -> None:
        for line in changes(self._last, snapshot):
            say(f"{units.clock_text(snapshot.elapsed_s):>7}  {line}", file=self._stream, flush=True)
        self._last = snapshot

    def __exit__(self, *_: object) -> None:
        console = Console(file=self._stream, width=CLOSING_WIDTH, force_terminal=False, color_system=None)
        print_closing(console, self._last)
        self._stream.flush()


def changes(before: Snapshot | None, now: Snapshot) -> Iterator[str]:
    """The changes between two snapshots: devices, then closed rounds, then the phase."""
    if is_large_fleet(now.devices):
        # Single devices of a large fleet come and go all the time.
        if before is None or len(before.devices) != len(now.devices):
            yield fleet_line(now.devices)
    else:
        known = {} if before is None else {view.device: view for view in before.devices}
        for view in now.devices:
            yield from _device_changes(known.get(view.device), view)
    if before is None and now.tested_on:
        yield units.clean(now.tested_on)
    closed = before.history[-1].round if before is not None and before.history else 0
    if before is None and now.history:
        last = now.history[-1]
        yield f"resumed after {round_text(last.round, now.rounds)}, {measured_text(last)}"
        closed = last.round
    for record in now.history:
        if record.round > closed:
            yield round_line(record, rounds=now.rounds)
    if now.no_link and (before is None or before.no_link != now.no_link):
        yield units.clean(now.no_link)
    if before is not None and before.no_link and not now.no_link:
        yield "connected"
    moved = before is None or (before.phase, before.round) != (now.phase, now.round)
    if moved and now.phase not in BRIEF:
        yield f"{now.progress}: {now.state}"


def _device_changes(before: DeviceView | None, now: DeviceView) -> Iterator[str]:
    online, was_online = now.state != OFFLINE, before is not None and before.state != OFFLINE
    if before is None:
        lost = "" if online else ", offline"
        ratio = units.ratio_text(now.ratio)
        yield f"joined: {units.clean(now.device)} (tier {now.tier}, {ratio} pruned{lost})"
    elif online and not was_online:
        yield f"back: {units.clean(now.device)}"
    elif was_online and not online:
        yield f"lost: {units.clean(now.device)}"


def round_line(record: RoundRecord, *, rounds: int) -> str:
    metric = leading_metric([record])
    text, tested = units.figure_text(metric), sorted(record.tier_metrics.items())
    tiers = " ".join(f"{tier}: {text(figures.get(metric.name))}" for tier, figures in tested)
    asked = record.statistics is not None
    parts = [
        "" if asked else measured_text(record),
        f"tiers {tiers}" if tiers else "",
        "" if asked else f"train loss {units.loss_text(record.train_loss)}",
        epsilon_text(record),
        f"{len(record.completed)}/{len(record.selected)} devices",
        trouble_text(record),
        late_text(record),
        f"{units.bytes_text(record.downlink_bytes)} down",
        f"{units.bytes_text(record.uplink_bytes)} up",
        units.duration_text(record.duration_s) + (" virtual" if record.virtual_time_s is not None else ""),
    ]
    return f"{round_text(record.round, rounds)} closed: " + ", ".join(part for part in parts if part)
