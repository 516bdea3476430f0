"""`edge-client profile`: describe this board and measure its speed."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from edge_client.cli.config_option import device_options
from edge_client.cli.options import Option, seconds_option
from edge_client.system.plain_text import print_rows

if TYPE_CHECKING:
    from pathlib import Path

    from edge_client.system.hardware.profile import Board
    from schemas.values import Accelerator, CapabilityProfile, MeasuredSpeed

HELP = "describe this board and measure its speed"
EXAMPLES = """\
The measurement takes about three seconds for each installed trainer (torch, onnxruntime), and is stored in
the device's state folder. `edge-client run` sends it in its birth message and never measures itself. Run
this command once, and again with a new torch or onnxruntime, or on another board. From the first round on
the server uses the measured training time.

examples:
  edge-client profile
  edge-client profile --config client.toml          for the device of this file
  edge-client profile --seconds 10 --format json
  edge-client profile --no-benchmark                only read the board
"""


OPTIONS = (
    *device_options("--federation", "--device-id", "--state-dir", "--device"),
    seconds_option("--seconds", "time to measure a trainer (default: 3)", 3.0),
    Option("--no-benchmark", bool, "measure nothing; show the stored measurement"),
)


def execute(args: argparse.Namespace) -> int:
    """Read the board, measure its speed, store and print the results."""
    from edge_client.cli.commands.run import state_folder
    from edge_client.storage.atomic_files import usable_folder
    from edge_client.system.hardware.profile import (
        describe_board,
        keep_speeds,
        look,
        speeds_file,
        training_on,
    )
    from edge_client.system.libraries import is_installed
    from edge_client.training.training_device import choose_device

    state = state_folder(args)
    usable_folder(state, option="--state-dir")
    board = look(state)
    accelerator = choose_device(args.device) if is_installed("torch") else None
    if not args.no_benchmark:
        keep_speeds(speeds_file(state), _measure_trainers(args.seconds, accelerator), board.processor)
    profile = describe_board(board, tier=getattr(args, "tier", None), measured=speeds_file(state))
    profile = training_on(profile, accelerator)
    document = {"profile": profile.model_dump(mode="json"), "board": asdict(board)}
    rows = [*_rows(board, profile), ("models run on", _provider_text(state))]
    return print_rows(args, document, ("what", "here"), rows)


def _measure_trainers(seconds: float, accelerator: "Accelerator | None" = None) -> "list[MeasuredSpeed]":
    """The speed with every trainer that is installed, the best first; of memory alone without one.

    torch is measured on the processor and on the accelerator.
    """
    from edge_client.training.choice import installed_trainers
    from edge_client.training.device_speed import measure

    trainers = installed_trainers()
    # The memory of a process with onnxruntime is measured before torch is imported.
    speeds = [measure(trainer, seconds) for trainer in reversed(trainers or (None,))]
    if accelerator is not None:
        speeds.append(measure("torch", seconds, accelerator=accelerator.kind))
    return speeds[::-1]


def _rows(board: "Board", profile: "CapabilityProfile") -> Iterator[tuple[str, str]]:
    yield "machine", profile.machine
    yield "processor", f"{profile.processor or 'unknown'}, {profile.cores} cores, {profile.architecture}"
    yield "accelerator", profile.accelerator or "none"
    if (found := profile.trains_on) is not None:
        own = f"{_size(found.free_bytes)} free of {_size(found.memory_bytes)}"
        yield (
            "torch trains on",
            f"{found.kind}, {found.name}, {'the memory of the board' if found.shares else own}",
        )
    yield "memory", f"{_size(board.memory.physical)}, {_size(board.memory.available)} available"
    yield "memory limit", "none" if board.memory.limit is None else _size(board.memory.limit)
    yield "free to this process", _size(board.memory.free)
    yield "disk", f"{_size(profile.disk_bytes)}, {_size(profile.disk_free_bytes)} free"
    yield from _speed_rows(profile)
    yield "temperature", ", ".join(f"{zone.name} {zone.celsius:.1f} C" for zone in board.zones) or "unknown"
    yield "throttling", "unknown" if board.throttling is None else ", ".join(board.throttling) or "none"
    battery = "" if profile.battery is None else f", battery at {profile.battery:.0%}"
    yield "power", f"{profile.power or 'unknown'}{battery}"
    yield "link", f"{board.connection.interface}, {profile.link or 'unknown'}" if board.connection else "none"
    yield "load", "unknown" if board.load is None else f"{board.load:.2f}"
    pressure = board.memory_pressure
    yield "memory pressure", "unknown" if pressure is None else f"{pressure.some:.1%} of the time"
    yield "software", ", ".join(f"{name} {version}" for name, version in profile.software.items())


def _provider_text(state: "Path") -> str:
    from edge_client.cli.doctor.machine import choice_of

    choice = choice_of(state)
    return "cpu" if choice is None else f"{choice.provider}: {choice.why}"


def _speed_rows(profile: "CapabilityProfile") -> Iterator[tuple[str, str]]:
    if profile.speed is None:
        yield "speed", "not measured"
        return
    for speed in profile.speeds:
        macs = speed.training_macs_per_s
        if macs is None and speed.resident_bytes is None:
            yield "training", "neither torch nor onnxruntime here"
            continue
        on = "" if speed.device == "cpu" else f" on {speed.device}"
        yield (
            f"training with {speed.trainer}{on}",
            "not measured" if macs is None else f"{macs / 1e9:.2f} GMAC/s",
        )
        yield f"a process with {speed.trainer}", _size(speed.resident_bytes)
    moved = profile.speed.memory_bytes_per_s
    yield "memory bandwidth", "unknown" if moved is None else f"{moved / 1e9:.1f} GB/s"


def _size(count: int | None) -> str:
    """A size in decimal units, as disks and memory limits are stated."""
    if count is None:
        return "unknown"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
