"""`edge-client run`: take part in a federation."""

import argparse
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli import options
from edge_client.cli.config_option import device_options
from edge_client.data.sources import SOURCES
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import print_json
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.agent.agent import AgentSettings
    from edge_client.agent.local_source import LocalSource
    from edge_client.inference.providers.table import ProviderSettings
    from edge_client.training.trainer import Trainer
    from edge_client.transport.broker_link import BrokerAddress
    from schemas.values import Accelerator, CapabilityProfile, TrainerName

SOURCES_REMEDY = (
    "say what this device learns from with --data, for instance --data folder:/srv/photos, npz:FILE.npz or "
    "python:module:function; --data digits are handwritten digits, for a first try"
)
log = logging.getLogger(__name__)

SOURCES_HELP = "\n".join(
    ("data sources:", *(f"  {kind.written:<28} {kind.summary}" for kind in SOURCES.shipped.values()))
)
EXAMPLES = f"""\
{SOURCES_HELP}
  npz:PATH#train               four fifths of every class; the server tests on the rest (npz:PATH#test)

examples:
  edge-client run --broker mqtt://server:1883 --device-id pi-kitchen --data folder:photos
  edge-client run --broker mqtt://server:1883 --device-id pi-3 --data digits \\
      --partition 'dirichlet(0.3)' --share 3/5 --tier 1
  edge-client run --broker mqtts://server:8883 --ca ca.pem --cert pi-3.pem --key pi-3.key \\
      --device-id pi-3 --data digits --trust signing.pub
  edge-client run --broker mqtt://server:1883 --device-id pi-3 --data npz:digits.npz \\
      --flower myapp.client_app:app --share 3/5        an unmodified Flower ClientApp trains
  edge-client run --config client.toml     options as keys, and a certificate (see `edge-server enroll`);
                                           [eligibility] there says when the device may train,
                                           [veto] what it declines

Data may grow while the device runs: it is looked at again every --watch-data-s seconds.

The device reconnects while the broker is unreachable. It ends with exit code 2 if a retry cannot help (a
wrong authority, a certificate or name that the broker refuses), unless --keep-trying is given. Ctrl-C or
SIGTERM ends it cleanly. Started again with the same --state-dir, also after a kill or a power cut, it
continues its task after the last saved epoch, and sends only the missing chunks.
"""


def register(verbs: options.Subparsers) -> None:
    options.add_verb(
        verbs,
        "run",
        execute,
        (*device_options(), *options.log_options("info")),
        help="take part in a federation",
        examples=EXAMPLES,
        eligibility=None,
        veto=None,
    )


def execute(args: argparse.Namespace) -> int:
    """Run until the federation ends (with --once) or the user stops the device."""
    from edge_client.agent.agent import Agent
    from edge_client.agent.restart import restart

    settings = _settings(args)
    source = make_local_source(args, settings.state)
    agent = Agent(settings, source.read(), feed=source if source.grows else None)
    signal.signal(signal.SIGTERM, lambda *_: agent.stop())
    signal.signal(signal.SIGINT, lambda *_: agent.stop())
    outcome = agent.run()
    if agent.restart_wanted and settings.install_root is not None:
        return restart(settings.install_root, sys.argv[1:])
    if args.format == "json":
        print_json({"device": args.device_id, "outcome": outcome})
    return 0 if outcome in (None, "finished") else 1


def _settings(args: argparse.Namespace) -> "AgentSettings":
    """The device's settings; the log begins, and broker, certificate, folder and board are looked at."""
    from edge_client.agent.agent import AgentSettings
    from edge_client.agent.eligibility.rules import Rules, Veto
    from edge_client.agent.restart import install_root
    from edge_client.agent.settings import RemoteSettings
    from edge_client.inference.quantization.selection import VariantSettings
    from edge_client.system.process_memory import keep_freed_memory, return_large_blocks
    from edge_client.training.checkpoints import INTERVAL_S

    providers = _providers(args)
    address, state = _address(args), _lock_state(args)
    profile = make_profile(args, state)
    # Freed memory stays with torch, which uses it again, else it goes back to the system.
    (keep_freed_memory if profile.trainers[0] == "torch" else return_large_blocks)()
    return AgentSettings(
        federation=args.federation,
        device=args.device_id,
        labels=_labels(args.label),
        address=address,
        state=state,
        source=args.data,
        profile=profile,
        once=args.once,
        threads=args.threads,
        model_code=frozenset(args.model_code),
        trust=options.read_trust_option(args),
        checkpoint_s=args.checkpoint_s or INTERVAL_S,
        only_masked=args.only_masked,
        min_examples=args.min_examples,
        variants=VariantSettings(tuple(args.variants), args.max_accuracy_loss),
        providers=providers,
        telemetry_every_s=args.telemetry_every_s,
        eligibility=args.eligibility or Rules(),
        veto=args.veto or Veto(),
        trainer=_flower_trainer(args),
        keep_trying=args.keep_trying,
        watch_data_s=args.watch_data_s,
        remote=RemoteSettings(args.remote_diagnostics, args.data_root),
        install_root=install_root(),
    )


def _providers(args: argparse.Namespace) -> "ProviderSettings":
    """The providers to try; `ConfigError` for one that is asked for and not there."""
    from edge_client.inference.providers.table import ProviderSettings

    providers = ProviderSettings(tuple(args.providers))
    if providers.is_stated:
        providers.accelerators()
    return providers


def _address(args: argparse.Namespace) -> "BrokerAddress":
    """The broker's address, once names and certificate are valid; the log begins."""
    from schemas.base import check_names

    check_names(federation=args.federation, device_id=args.device_id)
    address = options.read_broker_option(args)
    begin_log(args, level=logging.INFO, federation=args.federation, device=args.device_id)
    _check_certificate(address, args.device_id)
    return address


def _lock_state(args: argparse.Namespace) -> Path:
    """The state folder, which keeps records of this process from now on."""
    from edge_client.storage.atomic_files import lock_folder, usable_folder

    state = state_folder(args)
    usable_folder(state, option="--state-dir")
    lock_folder(state, option="--state-dir")
    _keep_records(state)
    return state


def _labels(stated: list[str]) -> dict[str, str]:
    from schemas.selectors import MAX_LABELS, parse_label

    labels = dict(parse_label(text) for text in stated)
    if len(labels) > MAX_LABELS:
        raise ConfigError(f"{len(labels)} labels; a device has at most {MAX_LABELS}", key="--label")
    return labels


def _keep_records(state: Path) -> None:
    """Keep the log and unexpected ends of this process in the state folder; log how the last one ended."""
    from edge_client.system.child_process import last_line
    from edge_client.system.crash_record import record_crashes
    from edge_client.system.logging.setup import keep_recent_log

    keep_recent_log(state)
    ended = record_crashes(state)
    if ended is not None:
        why = last_line(ended["text"])
        log.warning("the process before this one ended unexpectedly (%s): %s", ended["cause"], why)


def _check_certificate(address: "BrokerAddress", device: str) -> None:
    """Raise `ConfigError` for a certificate that cannot work, since the broker's refusal names no reason."""
    if address.tls is None or address.tls.certificate is None:
        return
    from edge_client.security.identity.key_pair import CertificateFiles, check_files

    if address.tls.key is not None:
        CertificateFiles(address.tls.certificate, address.tls.key).complete()
    check_files(address.tls, device, time.time())


def state_folder(args: argparse.Namespace) -> Path:
    """The folder of `--state-dir`, or the default one of the device."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    default = Path(base).expanduser() / "edge-federation" / args.federation / args.device_id
    return Path(args.state_dir or default)


def make_local_source(args: argparse.Namespace, state: Path) -> "LocalSource":
    from edge_client.agent.local_source import DataChoice, DriftMonitor, LocalSource
    from edge_client.data.partition import parse_partition

    match = re.fullmatch(r"(\d+)/(\d+)", args.share)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise ConfigError("expected I/N with I from 1 to N, for instance 3/5", key=f"--share '{args.share}'")
    partition = parse_partition(args.partition)
    if args.data is None:
        place = f" (`data` in {args.config_file})" if args.config_file else ""
        raise ConfigError(f"run: no data{place}", remedy=SOURCES_REMEDY)
    return LocalSource(
        DataChoice(args.data, args.data_root, partition, index - 1, count, args.hold_out, args.seed),
        record=state / "examples",
        drift=DriftMonitor(state / "models", alarm_rate=args.drift_alarms) if args.drift_alarms else None,
    )


def make_profile(args: argparse.Namespace, state: Path) -> "CapabilityProfile":
    """This machine's profile with its trainers; `ConfigError` if the wanted one is not installed."""
    from edge_client.system.hardware.profile import profile, training_on
    from edge_client.training.choice import PROCESS_BYTES, choose_trainers, outdated_runtime, process_bytes
    from schemas.values import MeasuredSpeed

    found = profile(state, tier=args.tier)
    needed = process_bytes(found.speeds)
    wanted = "torch" if args.flower is not None and args.trainer == "auto" else args.trainer
    trainers = choose_trainers(wanted, free_memory=found.memory_free_bytes, needed=needed)
    if args.trainer == "auto" and (outdated := outdated_runtime()):
        log.warning("this device cannot train with onnxruntime: %s", outdated)
    log.info("trains with %s", " or ".join(trainers))
    found = training_on(found, _accelerator(args, trainers))
    further = found.further_speeds
    if (
        "torch" in trainers
        and found.speed_with("torch") is None
        and needed["torch"] != PROCESS_BYTES["torch"]
    ):
        # The server is to plan with what this torch takes, before the first process has imported it.
        further = (*further, MeasuredSpeed(trainer="torch", resident_bytes=needed["torch"]))
    return found.model_copy(update={"trainers": trainers, "further_speeds": further})


def _accelerator(args: argparse.Namespace, trainers: "Sequence[TrainerName]") -> "Accelerator | None":
    """What torch trains on in place of the processor; `ConfigError` for one that is asked for in vain."""
    from edge_client.training.training_device import choose_device

    if args.flower is None and trainers[0] == "torch":
        return choose_device(args.device)
    if args.device in ("cuda", "mps"):
        why = "a Flower app chooses for itself" if args.flower else "for onnxruntime there is --providers"
        raise ConfigError(why, key=f"--device {args.device}", remedy="leave it out")
    return None


def _flower_trainer(args: argparse.Namespace) -> "Trainer | None":
    """The trainer with the Flower app, if one is named; `ConfigError` if the app cannot train."""
    if args.flower is None:
        for option, words in (("--flower-config", args.flower_config), ("--flower-node", args.flower_node)):
            if words:
                raise ConfigError(f"{option} is for --flower MODULE:APP, which is not given")
        return None
    if args.trainer == "onnx":
        raise ConfigError(
            "a Flower app trains with its own libraries", key="--trainer onnx", remedy="leave --trainer out"
        )
    if args.checkpoint_s is not None:
        raise ConfigError(
            "a Flower app trains in one step, there is nothing to save in it", key="--checkpoint-s"
        )
    from edge_client.training.flower.settings import FlowerSettings, read_words

    # Settings first: an error in them is reported without importing the app, which takes seconds.
    share = re.fullmatch(r"(\d+)/(\d+)", args.share)
    node = {"partition-id": int(share[1]) - 1, "num-partitions": int(share[2])} if share else {}
    settings = FlowerSettings(
        args.flower,
        read_words(args.flower_config, option="--flower-config"),
        {**node, **read_words(args.flower_node, option="--flower-node")},
    )
    from edge_client.training.flower.work import FlowerWork
    from edge_client.training.torch_trainer import TorchTrainer

    return TorchTrainer(FlowerWork(settings, args.device_id), threads=args.threads)
