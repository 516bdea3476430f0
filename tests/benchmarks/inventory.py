"""The fleet service with 2,000 retained births of 50 sites: its memory, `devices --where`, its page."""

import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from edge_server.transport.broker.launch import free_port, running_broker
from schemas.messages import Birth, encode_message
from schemas.topics import Channel, DeviceTopic
from schemas.values import CapabilityProfile, DataCard
from tests.benchmarks.figure import Figure
from tests.benchmarks.fleet_page import add_user, first_paints
from tests.benchmarks.options import Options
from tests.benchmarks.processes import Started, cpu_seconds
from tests.benchmarks.resident import peak_rss
from tests.browser.screen import find_chromium
from tests.mqtt_clients import connected_client

FEDERATION, DEVICES, SITES = "large", 2000, 50
DEADLINE_S = 120.0
MAX_S, MAX_MB, MAX_PAINT_S = 0.3, 600.0, 1.0
PROFILE = CapabilityProfile(
    machine="Raspberry Pi 4 Model B Rev 1.4",
    processor="Cortex-A72",
    architecture="aarch64",
    cores=4,
    memory_bytes=4 * 1024**3,
    software={"edge-federation": "0.1.0", "torch": "2.9.0", "onnxruntime": "1.23.0", "python": "3.11.2"},
)
CARD = DataCard(source="digits", examples=100, input_shape=(1, 8, 8), num_classes=10)


@dataclass(frozen=True)
class LargeFleet:
    """A running service: its folder, process and page, and the seconds until it knew all devices."""

    folder: ServiceFolder
    pid: int
    seconds: float
    page: str


def figures(options: Options) -> list[Figure]:
    """Let the service take the births, then run the command again and again."""
    devices, times = (200, 3) if options.quick else (DEVICES, 11)
    with serving(devices) as fleet:
        peak = (peak_rss(fleet.pid) or 0) / 1e6
        used = cpu_seconds(fleet.pid)
        some = [_listed(fleet.folder, "site=s7", devices // SITES) for _ in range(times + 1)][1:]
        all_of_them = [_listed(fleet.folder, "role=camera", devices) for _ in range(times + 1)][1:]
        paints, shown = first_paints(fleet.page, devices, times) if find_chromium() else ((), ())
    about = (
        f"{devices} devices of {SITES} sites in the inventory; the whole command, from its process's start"
    )
    return [
        Figure("inventory", "`devices --where` of one site", "s", _walls(some), target=MAX_S, detail=about),
        Figure("inventory", "processor of that", "s", tuple(processor for _, processor in some)),
        Figure("inventory", "`devices --where` that chooses all", "s", _walls(all_of_them)),
        *_of_page(paints, shown),
        Figure("service", "peak memory with retained births", "MB", (peak,), target=MAX_MB, detail=about),
        Figure("service", "time until the inventory has all births", "s", (fleet.seconds,)),
        Figure("service", "processor until then", "s", (used,)),
    ]


def _of_page(paints: tuple[float, ...], shown: tuple[float, ...]) -> list[Figure]:
    if not paints:
        return []
    return [
        Figure("service", "the page's first paint", "s", paints, target=MAX_PAINT_S, detail="in Chromium"),
        Figure("service", "until the page shows the devices", "s", shown),
    ]


@contextlib.contextmanager
def serving(devices: int) -> Iterator[LargeFleet]:
    """`edge-server serve` with the retained births of idle devices."""
    started = Started()
    with tempfile.TemporaryDirectory() as name, running_broker("auto", Path(name) / "broker") as broker:
        folder = ServiceFolder(Path(name) / "service")
        folder.path.mkdir()
        port = free_port()
        folder.settings.write_text(
            f'[[federations]]\nname = "{FEDERATION}"\nbroker = "{broker.url}"\n[page]\nport = {port}\n'
        )
        add_user(folder)
        _publish_births(broker.url, devices)
        command = [sys.executable, "-m", "edge_server.cli.main", "serve", str(folder.path)]
        try:
            began = time.monotonic()
            process = started.start("service", command, log=Path(name) / "log")
            _await_devices(folder, devices, process)
            yield LargeFleet(folder, process.pid, time.monotonic() - began, f"http://127.0.0.1:{port}")
        finally:
            started.end()


def _publish_births(url: str, devices: int) -> None:
    with connected_client("127.0.0.1", int(url.rpartition(":")[2])) as client:
        for number in range(devices):
            device = f"pi-{number:04}"
            labels = {"site": f"s{number % SITES}", "role": "camera"}
            birth = Birth(
                federation=FEDERATION, device=device, session=1, profile=PROFILE, data=CARD, labels=labels
            )
            topic = str(DeviceTopic(FEDERATION, device, Channel.BIRTH))
            client.publish(topic, encode_message(birth), qos=1, retain=True).wait_for_publish(DEADLINE_S)


def _await_devices(folder: ServiceFolder, devices: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until and process.poll() is None:
        if folder.inventory.exists():
            with contextlib.closing(Inventory(folder.inventory)) as inventory:
                if sum(device.alive for device in inventory.devices()) == devices:
                    return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.25)
    raise RuntimeError(f"the service does not know {devices} devices after {DEADLINE_S:g} s")


def _walls(taken: list[tuple[float, float]]) -> tuple[float, ...]:
    return tuple(wall for wall, _ in taken)


def _listed(folder: ServiceFolder, where: str, expected: int) -> tuple[float, float]:
    """Seconds of one command, and of the processor; its output is checked."""
    command = [sys.executable, "-m", "edge_server.cli.main", "devices", "--where", where]
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*command, "--service", str(folder.path)], capture_output=True, text=True, check=True
    )
    taken, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if f"{expected} devices" not in done.stdout:
        raise RuntimeError(f"--where {where} has not listed {expected} devices: {done.stdout[-200:]}")
    return taken, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
