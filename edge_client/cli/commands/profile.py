"""`edge-client profile`: what this board is, and how fast."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.cli.config_option import ReadConfig
from edge_client.cli.output import Subparsers, add_verb, positive_float, print_json, print_table

if TYPE_CHECKING:
    from edge_client.system.hardware.board import Board
    from schemas.values import CapabilityProfile, MeasuredSpeed

EXAMPLES = """\
The measurement takes about three seconds and is kept in the device's state folder: `edge-client run` puts it
into its birth message and never measures by itself. Run this once, and again after a new torch or on another
board; from the first round on the server goes by how long training really took.

examples:
  edge-client profile
  edge-client profile --config client.toml          for the device of this file
  edge-client profile --seconds 10 --format json
  edge-client profile --no-benchmark                only look
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(
        subparsers, "profile", help="say what this board is, and measure how fast", examples=EXAMPLES
    )
    parser.add_argument(
        "--config", action=ReadConfig, dest="config_file", metavar="FILE", help="the device's client.toml"
    )
    parser.add_argument("--federation", default="federation", metavar="NAME", help="(default: %(default)s)")
    parser.add_argument(
        "--device-id", default=socket.gethostname(), metavar="NAME", help="(default: host name)"
    )
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="the device's (default: under ~)")
    parser.add_argument(
        "--seconds", type=positive_float, default=3.0, metavar="S", help="time to measure (default: 3)"
    )
    parser.add_argument(
        "--no-benchmark", action="store_true", help="measure nothing; tell what was measured before"
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Look, measure, keep, print."""
    from edge_client.cli.commands.run import default_state
    from edge_client.storage.atomic_files import usable_folder
    from edge_client.system.hardware import speed_cache
    from edge_client.system.hardware.board import look
    from edge_client.system.hardware.profile import described
    from edge_client.training import device_speed

    state = args.state_dir or default_state(args.federation, args.device_id)
    usable_folder(state, option="--state-dir")
    board = look(state)
    if not args.no_benchmark:
        speed_cache.keep(speed_cache.kept_at(state), device_speed.measure(args.seconds), board.processor)
    told = described(board, tier=getattr(args, "tier", None), measured=speed_cache.kept_at(state))
    if args.format == "json":
        print_json({"profile": told.model_dump(mode="json"), "board": _plain(board)})
    else:
        print_table(("what", "here"), list(_rows(board, told)))
    return 0


def _plain(board: Board) -> dict[str, Any]:
    """All that was read, what is no part of the birth message too."""
    return asdict(board)


def _rows(board: Board, told: CapabilityProfile) -> Iterator[tuple[str, str]]:
    yield "machine", told.machine
    yield "processor", f"{told.processor or 'unknown'}, {told.cores} cores, {told.architecture}"
    yield "accelerator", told.accelerator or "none"
    yield "memory", f"{_size(board.memory.physical)}, {_size(board.memory.available)} available"
    yield "memory limit", "none" if board.memory.limit is None else _size(board.memory.limit)
    yield "free to this process", _size(board.memory.free)
    yield "disk", f"{_size(told.disk_bytes)}, {_size(told.disk_free_bytes)} free"
    yield from _speed_rows(told.speed)
    yield "temperature", ", ".join(f"{one.name} {one.celsius:.1f} C" for one in board.zones) or "unknown"
    yield "throttling", "unknown" if board.throttling is None else ", ".join(board.throttling) or "none"
    yield "power", _power(told)
    yield "link", f"{board.connection.interface}, {told.link or 'unknown'}" if board.connection else "none"
    yield "load", "unknown" if board.load is None else f"{board.load:.2f}"
    pressure = board.memory_pressure
    yield "memory pressure", "unknown" if pressure is None else f"{pressure.some:.1%} of the time"
    yield "software", ", ".join(f"{name} {version}" for name, version in told.software.items())


def _speed_rows(speed: MeasuredSpeed | None) -> Iterator[tuple[str, str]]:
    if speed is None:
        yield "speed", "not measured"
        return
    macs, moved = speed.training_macs_per_s, speed.memory_bytes_per_s
    yield "training", "no torch here" if macs is None else f"{macs / 1e9:.2f} GMAC/s"
    yield "memory bandwidth", "unknown" if moved is None else f"{moved / 1e9:.1f} GB/s"
    yield "a process that can train", _size(speed.resident_bytes)


def _power(told: CapabilityProfile) -> str:
    battery = "" if told.battery is None else f", battery at {told.battery:.0%}"
    return f"{told.power or 'unknown'}{battery}"


def _size(count: int | None) -> str:
    """In decimal units, as disks and memory limits are stated."""
    if count is None:
        return "unknown"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
