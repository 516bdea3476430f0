"""`edge-client serve`: answer requests with the current model, and switch to new versions."""

import argparse
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli import device_options, options
from edge_client.system import plain_text, process_memory
from edge_client.system.logging.setup import begin_log
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.inference.service.health import HealthWriter
    from edge_client.inference.service.model_source import Source
    from edge_client.inference.service.mqtt import MqttChannel
    from edge_client.inference.service.predictor import Predictor

HELP = "answer requests with the current model"
EXAMPLES = """\
what is served:
  MODEL.onnx        this file; a replaced file (written elsewhere, renamed) is served a second later
  --state-dir DIR   the device's last delivered or rolled-out model (DIR/serving)

requests:
  POST /predict     an image file, .npy, .npz, or JSON: {"image": "<base64>"}, {"pixels": [...]}
                    or {"values": {"temperature": 21.4, "co2": 480}} of a table; ?top=K for more classes
  GET /healthz      200 with a model, 503 without
  GET /metrics      for Prometheus
  GET /             with --page: the last picture, its boxes or classes, for a browser
  With --broker the same requests arrive on fed/v1/FEDERATION/devices/DEVICE/predict/request
  and are answered on fed/v1/FEDERATION/devices/DEVICE/predict/answer.

examples:
  edge-client serve model.onnx
  edge-client serve --state-dir ~/.local/state/edge-federation/home/pi-3 --trust signing.pub
  curl --data-binary @photo.png 'http://127.0.0.1:8093/predict?top=3'
  edge-client serve model.onnx --broker mqtt://127.0.0.1 --federation home --device-id pi-3

SIGTERM and Ctrl-C end the service after running requests; SIGHUP checks for a new model at once. There is no
authentication: keep the default --host, or add a proxy.
"""


OPTIONS = (
    options.Option("model", Path, "the model to serve", metavar="MODEL.onnx", nargs="?"),
    options.Option("--state-dir", Path, "serve from this device's slots", metavar="DIR"),
    options.Option("--host", help="address to listen at (default: %(default)s)", default="127.0.0.1"),
    options.count_option("--port", "0 takes a free one (default: %(default)s)", 8093, options.PORT),
    options.count_option("--threads", "threads per request (default: 1)", 1),
    options.Option(
        "--max-body",
        int,
        "refuse larger requests (default: 8 MiB)",
        8 * 1024 * 1024,
        "BYTES",
        options.AT_LEAST_1,
    ),
    options.seconds_option("--poll-s", "seconds between checks for a new model (default: 1)", 1.0),
    options.Option("--page", bool, "show the last picture with its answer at /"),
    options.Option("--broker", help="also answer over this MQTT broker", metavar="URL"),
    *options.tls_options("this service's"),
    options.Option("--federation", help="(default: %(default)s)", default="federation", metavar="NAME"),
    options.Option("--device-id", help="device of the topics (default: host name)", metavar="NAME"),
    device_options.PROVIDERS,
    options.TRUST,
    options.Option("--quiet", bool, "log warnings only"),
    *options.log_options("info"),
)


def execute(args: argparse.Namespace) -> int:
    # Predictions need no matrix library but onnxruntime's own, and its threads' buffers take memory.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    process_memory.share_one_heap()
    _import_http()
    from edge_client.inference.service.http import PredictionServer
    from edge_client.inference.service.lifecycle import PredictionService
    from edge_client.inference.service.metrics import RequestMetrics
    from edge_client.inference.service.predictor import Predictor

    named = {"federation": args.federation, "device": args.device_id} if args.broker else {}
    begin_log(args, level=logging.INFO, **named)
    source = _source(args)
    health = _health(source)
    predictor = Predictor(source, RequestMetrics(), health, keeps_last=args.page)
    if args.model is not None:
        predictor.load()
    else:
        predictor.refresh()
    mqtt = _mqtt_channel(args, predictor)
    try:
        web = PredictionServer((args.host, args.port), predictor, max_body=args.max_body)
    except OSError as error:
        remedy = "name another with --host and --port"
        raise ConfigError(
            f"cannot listen at {args.host}:{args.port}: {error.strerror}", remedy=remedy
        ) from error
    serving = PredictionService(predictor, web, mqtt=mqtt, poll_s=args.poll_s, health=health)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: serving.stop())
    signal.signal(signal.SIGHUP, lambda *_: serving.look_now())
    _tell_where(args, web.port)
    serving.run()
    return 0


def _import_http() -> None:
    """Import `http` without TLS, which its client would import: saves 2 MB.

    A later import of TLS, as for MQTT, still works.
    """
    if "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import http.server  # noqa: F401
    finally:
        del sys.modules["ssl"]


def _source(args: argparse.Namespace) -> "Source":
    from edge_client.inference.model_slots import Slots
    from edge_client.inference.providers.table import ProviderSettings
    from edge_client.inference.service.model_source import FileSource, SlotSource

    if (args.model is None) == (args.state_dir is None):
        raise ConfigError("serve: name either MODEL.onnx or --state-dir DIR")
    trust, providers = options.read_trust_option(args), ProviderSettings(tuple(args.providers))
    providers.accelerators()  # one that is not there ends the start, not a later change of the model
    if args.model is not None:
        return FileSource(args.model, args.threads, trust, providers)
    if not args.state_dir.is_dir():
        raise ConfigError("there is no such folder", key=f"--state-dir {args.state_dir}")
    return SlotSource(Slots(args.state_dir / "serving"), args.threads, trust, providers)


def _health(source: "Source") -> "HealthWriter | None":
    """The health record that the agent reads after a rollout, in the slot of the model."""
    from edge_client.inference.service.health import HealthWriter
    from edge_client.inference.service.model_source import SlotSource

    return HealthWriter(source.slots) if isinstance(source, SlotSource) else None


def _mqtt_channel(args: argparse.Namespace, predictor: "Predictor") -> "MqttChannel | None":
    if args.broker is None:
        return None
    from schemas.base import check_names

    try:
        from edge_client.inference.service.mqtt import MqttChannel
    except ModuleNotFoundError as error:
        remedy = "pip install 'edge-federation[mqtt]'"
        raise ConfigError(f"--broker needs {error.name}, which is not installed", remedy=remedy) from error

    device = args.device_id or socket.gethostname()
    check_names(federation=args.federation, device_id=device)
    address = options.read_broker_option(args)
    return MqttChannel(address, predictor, federation=args.federation, device=device, max_body=args.max_body)


def _tell_where(args: argparse.Namespace, port: int) -> None:
    host = f"[{args.host}]" if ":" in args.host else args.host
    url = f"http://{host}:{port}"
    plain_text.print_result(args, {"url": url, "pid": os.getpid()}, f"serving at {url}")
    sys.stdout.flush()
