"""File trees of boards: a Raspberry Pi 3 with a battery hat on Wi-Fi, with a systemd memory limit."""

from collections.abc import Mapping
from pathlib import Path

GROUP = "system.slice/edge-client.service"
PI = {
    "proc/cpuinfo": "processor\t: 0\n\nHardware\t: BCM2835\nModel\t: Raspberry Pi 3 Model B\n",
    "proc/device-tree/model": "Raspberry Pi 3 Model B Rev 1.2\0",
    "proc/meminfo": "MemTotal:         948304 kB\nMemAvailable:     700000 kB\nHugePages_Total: 0\n",
    "proc/loadavg": "1.25 0.50 0.25 2/150 4711\n",
    "proc/pressure/memory": (
        "some avg10=12.50 avg60=1.00 avg300=0.10 total=99\nfull avg10=2.50 avg60=0.00 avg300=0.00 total=9\n"
    ),
    "proc/self/cgroup": f"0::/{GROUP}\n",
    "proc/self/status": "Name:\tpython\nVmSize:\t  100000 kB\n",
    "proc/self/limits": (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max address space         unlimited            unlimited            bytes     \n"
    ),
    "proc/net/route": (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0101A8C0\t0002\t0\t0\t100\t00000000\t0\t0\t0\n"
        "wwan0\t00000000\t0101A8C0\t0003\t0\t0\t700\t00000000\t0\t0\t0\n"
        "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
    ),
    f"sys/fs/cgroup/{GROUP}/memory.max": "400000000\n",
    f"sys/fs/cgroup/{GROUP}/memory.current": "150000000\n",
    f"sys/fs/cgroup/{GROUP}/memory.stat": "anon 100\ninactive_file 50000000\n",
    f"sys/fs/cgroup/{GROUP}/memory.pressure": "some avg10=40.00 avg60=0.00 avg300=0.00 total=1\n",
    "sys/fs/cgroup/system.slice/memory.max": "max\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "61225\n",
    "sys/class/thermal/thermal_zone1/temp": "-274000\n",
    "sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n",
    "sys/class/power_supply/hat/type": "Battery\n",
    "sys/class/power_supply/hat/status": "Discharging\n",
    "sys/class/power_supply/hat/capacity": "42\n",
    "sys/class/power_supply/usb/type": "USB\n",
    "sys/class/power_supply/usb/online": "0\n",
    "sys/class/power_supply/mouse/type": "Battery\n",
    "sys/class/power_supply/mouse/scope": "Device\n",
    "sys/class/power_supply/mouse/capacity": "3\n",
    "sys/class/net/wlan0/wireless/status": "",
    "sys/class/net/wlan0/type": "1\n",
    "sys/class/net/eth0/type": "1\n",
    "sys/class/net/wwan0/uevent": "DEVTYPE=wwan\nINTERFACE=wwan0\n",
}


def tree(root: Path, *parts: Mapping[str, str | bytes | None]) -> Path:
    """Write files below `root`; a later part overrides an earlier one, and None omits the file."""
    files: dict[str, str | bytes | None] = {}
    for part in parts:
        files.update(part)
    for path, content in files.items():
        if content is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return root
