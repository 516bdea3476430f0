"""`edge-client doctor`: check what could keep this device from taking part, with remedies."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from edge_client.cli import app
from edge_client.cli.config_option import device_options
from edge_client.cli.options import Option, read_broker_option
from edge_client.system.plain_text import print_rows

if TYPE_CHECKING:
    from edge_client.cli.doctor.finding import Finding

HELP = "check libraries, trainers, broker, clock, memory and disk, with remedies"
EXAMPLES = """\
Prints one line per check: ok, warning (it works in part) or failure, with a remedy. Each library is tried in
a process of its own, so that a crash is detected. A broker set up by `edge-server enroll` allows one
connection per device: a running agent is disconnected briefly and reconnects.

examples:
  edge-client doctor --config client.toml
  edge-client doctor --broker mqtt://server:1883 --device-id pi-3
  edge-client doctor --offline                     libraries, trainers, clock, disk and memory only

exit codes: 0 nothing failed, 1 something did, 2 bad usage or configuration
"""


OPTIONS = (
    *device_options(
        "--broker",
        "--ca",
        "--cert",
        "--key",
        "--federation",
        "--device-id",
        "--state-dir",
        "--trainer",
        "--device",
        "--providers",
    ),
    Option("--offline", bool, "skip the broker"),
    Option(
        "--beside-agent",
        bool,
        "skip the checks that connect in this device's name, which would disconnect a running agent",
    ),
)


def execute(args: argparse.Namespace) -> int:
    found = list(_findings(args))
    rows = [(finding.check, finding.level, finding.detail, finding.remedy) for finding in found]
    print_rows(args, [asdict(finding) for finding in found], ("check", "result", "what", "remedy"), rows)
    return app.FAILED if any(finding.level == "failure" for finding in found) else app.DONE


def _findings(args: argparse.Namespace) -> "Iterator[Finding]":
    from edge_client.cli.commands.run import state_folder
    from edge_client.cli.doctor import machine
    from edge_client.cli.doctor.libraries import first_trainer, libraries, trainers
    from edge_client.cli.doctor.machine import providers
    from edge_client.inference.providers.table import ProviderSettings
    from edge_client.system.hardware.memory import memory
    from edge_client.system.hardware.processor import processor
    from edge_client.system.hardware.profile import recall_speeds, speeds_file
    from edge_client.training.choice import process_bytes

    state, stated = state_folder(args), ProviderSettings(tuple(args.providers))
    yield from libraries()
    yield from providers(state, stated=stated)
    yield machine.disk(state)
    free, needed = memory(), process_bytes(recall_speeds(speeds_file(state), processor()))
    first = first_trainer(args.trainer, free.free, needed)
    yield machine.room(free, first, {**machine.TO_TRAIN, "torch": needed["torch"]})
    yield from trainers(args.trainer, free.free, needed)
    if first == "torch":
        yield from machine.training_devices(args.device)
    yield machine.clock(machine.kernel_synchronised)
    if not args.offline:
        yield from check_online(args)


def check_online(args: argparse.Namespace) -> "Iterator[Finding]":
    from edge_client.cli.doctor.network import network

    address = read_broker_option(args)
    reached = list(network(address, args.device_id, time.time()))
    yield from reached
    if all(finding.level != "failure" for finding in reached):
        from edge_client.cli.doctor.broker import broker, strangers

        if not args.beside_agent:
            yield from broker(address, args.federation, args.device_id)
        yield strangers(address, args.federation)
