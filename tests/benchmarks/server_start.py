"""The start of a server: its processor time until it answers a device, and until it has announced the run.

A device that connects asks whether a server is there, again and again; what the server's process has used by
the time of the first answer is the figure. The server runs alone, with its modules compiled and in memory.
"""

import os
import queue
import sys
import tempfile
import time
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edge_server.transport.broker.launch import running_broker
from schemas.messages import BlobRequest, encode_message
from schemas.topics import Channel, DeviceTopic, StateTopic
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.processes import Started

FEDERATION, DEVICE = "start", "board"
ASK_S, DEADLINE_S = 0.02, 120.0
MAX_S = 1.5
ASKED = BlobRequest(federation=FEDERATION, device=DEVICE, digest="0" * 64, first=0, count=1)


def figures(options: Options) -> list[Figure]:
    """Start servers one after the other; the first is not counted."""
    turns = [_start() for _ in range(2 if options.quick else 8)][1:]
    answered, announced, waited = (tuple(values) for values in zip(*turns, strict=True))
    return [
        Figure("server", "start: processor until it answers a device", "s", answered, target=MAX_S),
        Figure("server", "start: processor until it has announced the run", "s", announced),
        Figure("server", "start: time until it answers a device", "s", waited),
    ]


def _start() -> tuple[float, float, float]:
    """Processor seconds until the answer and until the announcement; seconds until the answer."""
    with tempfile.TemporaryDirectory() as name, running_broker("auto", Path(name) / "broker") as broker:
        heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        client = _device(broker.url, heard)
        started, began = Started(), time.monotonic()
        words = ("run", "attending", f"federation.name={FEDERATION}", "data.source=digits")
        command = [
            *(sys.executable, "-m", "edge_server.cli.main", *words),
            *("--broker", broker.url, "--out", f"{name}/run", "--format", "json"),
        ]
        try:
            process = started.start("server", command, log=Path(name) / "log", env={"OMP_NUM_THREADS": "1"})
            _await(heard, str(DeviceTopic(FEDERATION, DEVICE, Channel.DOWN)), client)
            waited, answered = time.monotonic() - began, _processor_s(process.pid)
            _await(heard, str(StateTopic(FEDERATION)), client)
            return answered, _processor_s(process.pid), waited
        finally:
            client.disconnect()
            client.loop_stop()
            started.end()


def _device(url: str, heard: "queue.SimpleQueue[str]") -> mqtt.Client:
    """A client that hears what the server says to a device and to all."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_message = lambda _client, _data, message: heard.put(message.topic)
    client.connect("127.0.0.1", int(url.rpartition(":")[2]))
    for topic in (DeviceTopic(FEDERATION, DEVICE, Channel.DOWN), StateTopic(FEDERATION)):
        client.subscribe(str(topic), 1)
    client.loop_start()
    return client


def _await(heard: "queue.SimpleQueue[str]", topic: str, client: mqtt.Client) -> None:
    """Ask until something is heard on the topic."""
    until = time.monotonic() + DEADLINE_S
    asked = str(DeviceTopic(FEDERATION, DEVICE, Channel.UP))
    while time.monotonic() < until:
        client.publish(asked, encode_message(ASKED), qos=0)
        try:
            if heard.get(timeout=ASK_S) == topic:
                return
        except queue.Empty:
            continue
    raise RuntimeError(f"the server has said nothing on {topic}")


def _processor_s(pid: int) -> float:
    """Processor seconds of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
