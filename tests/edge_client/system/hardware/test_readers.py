"""Readers of a board's files, including files with garbage."""

from pathlib import Path

import pytest

from edge_client.agent.eligibility.rules import Rules
from edge_client.agent.eligibility.verdict import conditions, judge
from edge_client.system.hardware.memory import bounded_groups, memory, storage
from edge_client.system.hardware.network import Connection, connection
from edge_client.system.hardware.power import Power, Zone, hottest, power, zones
from edge_client.system.hardware.processor import Pressure, pressure, processor, read_load, saturates_bytes
from edge_client.system.hardware.profile import accelerator, look, throttle_flags
from schemas.values import Eligibility
from tests.edge_client.system.hardware.trees import GROUP, PI, tree

V1 = {"proc/self/cgroup": "5:cpu:/a\n4:memory:/docker/abc\n0::/\n"}


@pytest.fixture
def pi(tmp_path: Path) -> Path:
    return tree(tmp_path, PI)


def test_an_arm_board_is_named_by_its_device_tree(pi: Path) -> None:
    found = processor(pi)
    assert (found.board, found.model) == ("Raspberry Pi 3 Model B Rev 1.2", "BCM2835")
    assert found.cores >= 1


def test_without_a_device_tree_the_processors_file_names_the_board(tmp_path: Path) -> None:
    root = tree(tmp_path, PI, {"proc/device-tree/model": None})
    assert processor(root).board == "Raspberry Pi 3 Model B"


@pytest.mark.parametrize(
    ("flags", "saturates"),
    [("sse2 avx2", True), ("avx2 avx512f avx512_vnni", False), ("avx2 avx_vnni", False), ("sse2", False)],
)
def test_x86_without_vnni_adds_products_of_bytes_in_16_bits(
    tmp_path: Path, flags: str, saturates: bool
) -> None:
    assert (
        saturates_bytes(tree(tmp_path, {"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n"}))
        == saturates
    )


def test_an_arm_board_does_not(pi: Path) -> None:
    assert not saturates_bytes(pi)


def test_the_systemd_limit_bounds_total_and_free_memory(pi: Path) -> None:
    found = memory(pi)
    assert found.physical == 948_304 * 1024
    assert found.limit == found.usable == 400_000_000
    # 400 MB minus the 150 MB in use, plus 50 MB of idle file pages among them.
    assert found.free == 300_000_000


def test_a_lower_limit_of_a_parent_group_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        PI,
        {
            "sys/fs/cgroup/system.slice/memory.max": "300000000",
            "sys/fs/cgroup/system.slice/memory.current": "9",
        },
    )
    assert memory(root).limit == 300_000_000
    assert [group.folder.name for group in bounded_groups(root)] == ["edge-client.service", "system.slice"]


@pytest.mark.parametrize(
    ("stat", "version", "free"),
    [
        ("anon 100\ninactive_file 50000000\n", 2, 300_000_000),
        # A file that was read twice; kernels with MGLRU count it as inactive at once.
        ("anon 100\ninactive_file 20000000\nactive_file 30000000\n", 2, 300_000_000),
        ("anon 100\nactive_file 50000000\n", 2, 300_000_000),
        ("cache 5\ntotal_inactive_file 20000000\ntotal_active_file 30000000\n", 1, 300_000_000),
        # Counted late, they may be more than what is used.
        ("inactive_file 100000000\nactive_file 60000000\n", 2, 400_000_000),
        ("", 2, 250_000_000),
    ],
)
def test_pages_of_files_are_free_however_often_they_were_read(
    tmp_path: Path, stat: str, version: int, free: int
) -> None:
    own = "sys/fs/cgroup/memory/docker/abc" if version == 1 else f"sys/fs/cgroup/{GROUP}"
    files = {
        1: {f"{own}/memory.limit_in_bytes": "400000000", f"{own}/memory.usage_in_bytes": "150000000", **V1},
        2: {},
    }
    found = memory(tree(tmp_path, PI, files[version], {f"{own}/memory.stat": stat}))
    assert found.free == free


@pytest.mark.parametrize(
    ("high", "limit", "free", "slows"),
    [
        ("max\n", 400_000_000, 300_000_000, False),
        ("300000000\n", 300_000_000, 200_000_000, True),
        ("500000000\n", 400_000_000, 300_000_000, False),
        # 50 MB of the 150 MB in use are file pages: the other 100 MB are above this limit.
        ("90000000\n", 90_000_000, 0, True),
    ],
)
@pytest.mark.parametrize("group", [GROUP, "system.slice"])
def test_a_limit_above_which_the_process_is_slowed_down_bounds_it_too(
    tmp_path: Path, group: str, high: str, limit: int, free: int, slows: bool
) -> None:
    usage = {
        f"sys/fs/cgroup/{group}/memory.{name}": PI[f"sys/fs/cgroup/{GROUP}/memory.{name}"]
        for name in ("current", "stat")
    }
    found = memory(tree(tmp_path, PI, usage, {f"sys/fs/cgroup/{group}/memory.high": high}))
    assert (found.limit, found.usable, found.free, found.slows) == (limit, limit, free, slows)


def test_without_a_limit_the_machines_available_memory_is_free(tmp_path: Path) -> None:
    found = memory(tree(tmp_path, PI, {f"sys/fs/cgroup/{GROUP}/memory.max": "max\n"}))
    assert (found.limit, found.free) == (None, 700_000 * 1024)
    assert found.usable == found.physical


@pytest.mark.parametrize(
    ("limit", "expected"), [("268435456", 268_435_456), ("9223372036854771712", None), ("-1", None)]
)
def test_a_limit_of_version_1_is_read_from_the_processs_own_group(
    tmp_path: Path, limit: str, expected: int | None
) -> None:
    own = "sys/fs/cgroup/memory/docker/abc"
    files = {f"{own}/memory.limit_in_bytes": limit, f"{own}/memory.usage_in_bytes": "100000000"}
    found = memory(tree(tmp_path, PI, V1, files))
    assert found.limit == expected
    if expected is not None:
        assert found.free == expected - 100_000_000


@pytest.mark.parametrize("path", ["/docker/elsewhere", "/../../host", "/a\0b"])
def test_in_a_container_the_mounted_group_is_the_processs_own(tmp_path: Path, path: str) -> None:
    files = {
        "proc/self/cgroup": f"0::{path}\n",
        "sys/fs/cgroup/memory.max": "200000000",
        "sys/fs/cgroup/memory.current": "0",
    }
    assert memory(tree(tmp_path, PI, files)).limit == 200_000_000


def test_an_address_space_limit_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, PI, {"proc/self/limits": "Max address space   200000000   unlimited    bytes\n"})
    found = memory(root)
    # 200,000,000 minus the process's 100,000 kB.
    assert (found.limit, found.free) == (200_000_000, 97_600_000)


def test_load_and_pressure_use_the_shortest_averages(pi: Path) -> None:
    assert read_load(pi) == 1.25
    assert pressure("memory", pi) == Pressure(0.125, 0.025)
    assert pressure("io", pi) is None


def test_a_disabled_sensor_has_no_temperature(pi: Path) -> None:
    assert zones(pi) == (Zone("cpu-thermal", 61.225),)
    assert hottest(zones(pi)) == 61.225
    assert hottest(()) is None


def test_the_firmwares_flags_are_read_bit_by_bit(pi: Path) -> None:
    # 0x50005 = bits 0, 2, 16 and 18.
    assert throttle_flags(pi) == (
        "under-voltage",
        "throttled",
        "under-voltage-since-boot",
        "throttled-since-boot",
    )


def test_a_healthy_board_has_no_flags(tmp_path: Path) -> None:
    assert throttle_flags(tree(tmp_path, {"sys/devices/platform/soc/soc:firmware/get_throttled": "0"})) == ()


def supply(name: str, **files: str) -> dict[str, str]:
    return {f"sys/class/power_supply/{name}/{file}": content for file, content in files.items()}


def test_a_mouses_battery_is_not_the_boards(pi: Path) -> None:
    assert power(pi) == Power("battery", 0.42)


@pytest.mark.parametrize(
    ("supplies", "expected"),
    [
        ({}, Power(None, None)),
        (supply("ac", type="Mains", online="1"), Power("mains", None)),
        (supply("b", type="Battery", status="Charging", capacity="7"), Power("mains", 0.07)),
        (supply("b", type="Battery", energy_now="30", energy_full="40"), Power(None, 0.75)),
        (
            supply("b", type="Battery", capacity="50") | supply("ac", type="Mains", online="0"),
            Power("battery", 0.5),
        ),
        (supply("b", type="Battery", capacity="4711", status="Who knows"), Power(None, None)),
    ],
)
def test_the_source_of_power(tmp_path: Path, supplies: dict[str, str], expected: Power) -> None:
    assert power(tree(tmp_path, supplies)) == expected


def test_the_link_is_the_active_default_route_with_the_lowest_metric(pi: Path) -> None:
    assert connection(pi) == Connection("wlan0", "wifi")


ROUTE = "Iface ...\n{} 00000000 00000000 0003 0 0 0 00000000 0 0 0\n"


@pytest.mark.parametrize(
    ("interface", "files", "kind"),
    [
        ("eth0", {"type": "1"}, "wired"),
        ("usb0", {"type": "1", "uevent": "DEVTYPE=wwan\n"}, "cellular"),
        ("wwan0", {"type": "519"}, "cellular"),
        ("ppp0", {"type": "512"}, "cellular"),
        ("wlp2s0", {"type": "1", "uevent": "DEVTYPE=wlan\n"}, "wifi"),
        ("tun0", {"type": "65534"}, None),
    ],
)
def test_the_kind_of_a_link(tmp_path: Path, interface: str, files: dict[str, str], kind: str | None) -> None:
    below = {f"sys/class/net/{interface}/{name}": content for name, content in files.items()}
    found = connection(tree(tmp_path, below, {"proc/net/route": ROUTE.format(interface)}))
    assert found == Connection(interface, kind)


def test_without_ipv4_the_default_route_of_ipv6_counts(tmp_path: Path) -> None:
    nothing = "0" * 32
    line = "{} 00 {} 00 fe80 {:08x} 0 0 00000003 {}\n"
    routes = "".join(
        line.format(nothing, nothing, metric, name)
        for metric, name in ((1024, "wwan0"), (512, "eth0"), (1, "lo"))
    )
    root = tree(tmp_path, {"proc/net/ipv6_route": routes, "sys/class/net/eth0/type": "1"})
    assert connection(root) == Connection("eth0", "wired")


def test_a_jetson_has_an_accelerator(tmp_path: Path) -> None:
    assert accelerator(tmp_path) is None
    assert accelerator(tree(tmp_path, {"dev/nvhost-gpu": ""})) == "cuda"


def test_a_jetsons_graphics_processor_counts_for_heat_and_its_currents_for_throttling(tmp_path: Path) -> None:
    thermal, hwmon = "sys/class/thermal/thermal_zone", "sys/class/hwmon/hwmon2/oc"
    jetson = {
        f"{thermal}0/type": "cpu-thermal\n",
        f"{thermal}0/temp": "51000\n",
        f"{thermal}1/type": "gpu-thermal\n",
        f"{thermal}1/temp": "83500\n",
        # A processor that is off does not say how warm it is.
        f"{thermal}2/type": "cv0-thermal\n",
        f"{hwmon}1_event_cnt": "0\n",
        f"{hwmon}3_event_cnt": "0\n",
    }
    root = tree(tmp_path, jetson)
    assert hottest(zones(root)) == 83.5
    assert throttle_flags(root) == ()
    assert throttle_flags(tree(tmp_path, jetson, {f"{hwmon}3_event_cnt": "4\n"})) == (
        "over-current-since-boot",
    )
    verdict = judge(Rules(max_temperature_c=80), conditions(cores=6, root=root))
    assert (verdict.eligibility, verdict.detail) == (Eligibility.PAUSE, "84 °C, at most 80 °C")


def test_the_disk_of_a_missing_folder_is_found(tmp_path: Path) -> None:
    found = storage(tmp_path / "not" / "made")
    assert found is not None
    assert 0 < found.free <= found.total


GARBAGE = [
    b"",
    b"\xff\xfe\0\x01 : = \n kB",
    b"9" * 5000,
    b"-999999999",
    b"nan",
    b"1e999",
    b": : :\n" * 50,
    b"%n 0x\n/../",
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_board_with_garbage_files_can_still_be_described(tmp_path: Path, garbage: bytes) -> None:
    found = look(tmp_path, tree(tmp_path, dict.fromkeys(PI, garbage)))
    assert found.zones == ()
    assert found.memory.physical is None
    assert found.memory_pressure is None
    assert found.power.source is None


@pytest.mark.parametrize("path", PI)
def test_garbage_in_one_file_affects_at_most_one_value(tmp_path: Path, path: str) -> None:
    (tmp_path / "whole").mkdir()
    sound = look(tmp_path, tree(tmp_path / "whole", PI))
    (tmp_path / "bad").mkdir()
    broken = look(tmp_path, tree(tmp_path / "bad", PI, {path: b"\xff\0garbage"}))
    names = ("accelerator", "zones", "throttling", "power", "connection", "load", "memory_pressure")
    assert sum(getattr(sound, name) != getattr(broken, name) for name in names) <= 1


def test_a_board_without_any_of_these_files_can_be_described(tmp_path: Path) -> None:
    found = look(tmp_path, tmp_path)
    assert found.memory.free is None
    assert found.connection is None
    assert found.throttling is None
