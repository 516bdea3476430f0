"""Boards that virtual devices stand for: how fast each trains, its memory, its link, how often it is away.

Every figure is of one of three kinds, and each profile's `source` says which: a data sheet's, a published
measurement, or an estimate with its derivation. No board was measured for this file.

Training rate: `TRAINING_SHARE` of the rate of large fp32 matrix products. For a CPU that is twice its HPL
(Linpack) result, since HPL computes in fp64 and a SIMD register holds twice as many fp32 numbers; for a GPU
it is the fp32 peak, 2 FLOP per core and cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from schemas.errors import ConfigError, InvariantError, nearest

TRAINING_SHARE = 0.25
"""Estimate. SGD with batches of 10 and 50 on networks of the size of `mlp` and `two-nn` reached 0.17 to 0.70
of the rate of a 1024 x 1024 product (torch, one x86 core). A board is nearer the low end: its cores share
slow memory."""

RADIO_SHARE = 0.5
"""Estimate: a radio's best published throughput was measured beside the access point; half of it is left."""

WIRED_BPS = 941e6
"""iperf3 over a Raspberry Pi's gigabit Ethernet (mpr-projects.com, "RPi NAS: Part 3", 2023)."""

MIB = 1024**2
GIB = 1024**3
MINUTE, HOUR = 60.0, 3600.0


@dataclass(frozen=True)
class BoardProfile:
    """One kind of board, as the virtual clock needs it.

    `source`: where each figure comes from; `training_flops`: FLOP/s sustained in fp32 training, forward and
    backward; link rates in bits per second; `latency_s`: how long a message is on its way; `online_s`,
    `offline_s`: mean lengths of the spells of being there and being away (`offline_s` 0: always there).
    """

    name: str
    summary: str
    source: str
    training_flops: float
    memory_bytes: int
    downlink_bps: float
    uplink_bps: float
    latency_s: float
    online_s: float
    offline_s: float


def _cpu_flops(hpl_flops: float) -> float:
    return TRAINING_SHARE * 2 * hpl_flops


def _gpu_flops(cores: int, clock_hz: float) -> float:
    return TRAINING_SHARE * 2 * cores * clock_hz


_TOP500 = "github.com/geerlingguy/top500-benchmark"
_GUESSED = "Latency, online and offline spells: assumptions, see the folder's README."

PI_4_HPL = 11.889e9
PI_3_HPL = PI_4_HPL * 2459.22 / 5900.85
"""HPL of a Pi 3 B+ at 1.4 GHz, 4.95 GFLOP/s: the Pi 4's, scaled by sysbench events/s on four cores
(leoncode.co.uk, "Raspberry Pi CPU Benchmarks")."""
ZERO_2_HPL = PI_3_HPL * 1.0 / 1.4
"""Same Cortex-A53 cores at 1.0 GHz. The published 0.37 GFLOP/s (top500-benchmark, issue 26) is not used: its
matrix of 435 MB does not fit beside the system in 512 MB, so it measures the SD card."""

_PI_ZERO_2 = BoardProfile(
    name="pi-zero-2",
    summary="Raspberry Pi Zero 2 W: 4 Cortex-A53 at 1.0 GHz, 512 MB, 2.4 GHz Wi-Fi",
    source=(
        "Memory and clock: data sheet. Training: estimate, 0.25 x 2 x 3.54 GFLOP/s, the Pi 3's HPL scaled by "
        "clock. Link: estimate, half of the ~40 Mbit/s stated for the Pi 3 B's radio of the same class, one "
        f"antenna at 2.4 GHz (ovos-skill-speedtest's page on PyPI). {_GUESSED}"
    ),
    training_flops=_cpu_flops(ZERO_2_HPL),
    memory_bytes=512 * MIB,
    downlink_bps=RADIO_SHARE * 40e6,
    uplink_bps=RADIO_SHARE * 40e6,
    latency_s=0.02,
    online_s=1 * HOUR,
    offline_s=10 * MINUTE,
)
_PI_3 = BoardProfile(
    name="pi-3",
    summary="Raspberry Pi 3 Model B+: 4 Cortex-A53 at 1.4 GHz, 1 GB, 5 GHz Wi-Fi",
    source=(
        "Memory and clock: data sheet. Training: estimate, 0.25 x 2 x 4.95 GFLOP/s, the Pi 4's HPL scaled by "
        "sysbench on four cores (leoncode.co.uk: 2459 and 5901 events/s). Link: half of 97.67 Mbit/s, The "
        f"MagPi's benchmark at 5 GHz, as github.com/unvt/portable issue 23 quotes it. {_GUESSED}"
    ),
    training_flops=_cpu_flops(PI_3_HPL),
    memory_bytes=1 * GIB,
    downlink_bps=RADIO_SHARE * 97.67e6,
    uplink_bps=RADIO_SHARE * 97.67e6,
    latency_s=0.01,
    online_s=2 * HOUR,
    offline_s=10 * MINUTE,
)
_PI_4 = BoardProfile(
    name="pi-4",
    summary="Raspberry Pi 4 Model B: 4 Cortex-A72 at 1.8 GHz, 4 GB, 5 GHz Wi-Fi",
    source=(
        "Memory (sold with 1 to 8 GB) and clock: data sheet. Training: estimate, 0.25 x 2 x 11.889 GFLOP/s "
        f"of HPL ({_TOP500}, issue 13). Link: half of 114 Mbit/s, The MagPi's benchmark at 5 GHz, as "
        f"github.com/unvt/portable issue 23 quotes it. {_GUESSED}"
    ),
    training_flops=_cpu_flops(PI_4_HPL),
    memory_bytes=4 * GIB,
    downlink_bps=RADIO_SHARE * 114e6,
    uplink_bps=RADIO_SHARE * 114e6,
    latency_s=0.01,
    online_s=4 * HOUR,
    offline_s=10 * MINUTE,
)
_PI_5 = BoardProfile(
    name="pi-5",
    summary="Raspberry Pi 5: 4 Cortex-A76 at 2.4 GHz, 8 GB, 5 GHz Wi-Fi",
    source=(
        "Memory (sold with 2 to 16 GB) and clock: data sheet. Training: estimate, 0.25 x 2 x 30.249 GFLOP/s "
        f"of HPL ({_TOP500}, issue 18). Link: half of 262 down and 226 Mbit/s up, iperf3 at 5 GHz from half "
        f"a metre (github.com/fairscope/PlanktoScope pull request 865). {_GUESSED}"
    ),
    training_flops=_cpu_flops(30.249e9),
    memory_bytes=8 * GIB,
    downlink_bps=RADIO_SHARE * 262e6,
    uplink_bps=RADIO_SHARE * 226e6,
    latency_s=0.01,
    online_s=8 * HOUR,
    offline_s=10 * MINUTE,
)
_JETSON_NANO = BoardProfile(
    name="jetson-nano",
    summary="NVIDIA Jetson Nano: 128 Maxwell cores at 921.6 MHz, 4 GB, gigabit Ethernet",
    source=(
        "Memory, cores and clock: data sheet (472 GFLOP/s fp16, so 236 fp32). Training: estimate, 0.25 x 236 "
        "GFLOP/s. To compare: ResNet-18 inference in torch at 15.4 pictures/s (torch2trt discussion 861) is "
        "56 GFLOP/s in fp16. Link: gigabit Ethernet as measured on a Raspberry Pi (mpr-projects.com); the "
        f"developer kit has no radio. {_GUESSED}"
    ),
    training_flops=_gpu_flops(128, 921.6e6),
    memory_bytes=4 * GIB,
    downlink_bps=WIRED_BPS,
    uplink_bps=WIRED_BPS,
    latency_s=0.001,
    online_s=24 * HOUR,
    offline_s=10 * MINUTE,
)
_JETSON_ORIN = BoardProfile(
    name="jetson-orin",
    summary="NVIDIA Jetson Orin Nano 8GB: 1024 Ampere cores at 625 MHz, 8 GB, gigabit Ethernet",
    source=(
        "Memory, cores and clock: data sheet at 15 W, before the Super mode of 1020 MHz. Training: estimate, "
        "0.25 x 1.28 TFLOP/s of fp32 on CUDA cores, tensor cores unused. Link: gigabit Ethernet as measured "
        f"on a Raspberry Pi (mpr-projects.com). {_GUESSED}"
    ),
    training_flops=_gpu_flops(1024, 625e6),
    memory_bytes=8 * GIB,
    downlink_bps=WIRED_BPS,
    uplink_bps=WIRED_BPS,
    latency_s=0.001,
    online_s=24 * HOUR,
    offline_s=10 * MINUTE,
)
_IDEAL = BoardProfile(
    name="ideal",
    summary="no board: whatever it does takes no time, and it is always there",
    source="By definition: infinite rates, no latency, never away.",
    training_flops=math.inf,
    memory_bytes=1024 * GIB,
    downlink_bps=math.inf,
    uplink_bps=math.inf,
    latency_s=0.0,
    online_s=math.inf,
    offline_s=0.0,
)

PROFILES: Mapping[str, BoardProfile] = MappingProxyType(
    {board.name: board for board in (_PI_ZERO_2, _PI_3, _PI_4, _PI_5, _JETSON_NANO, _JETSON_ORIN, _IDEAL)}
)
"""Every board by name, the slowest first."""


def profile(name: str) -> BoardProfile:
    """The board of that name; raises `ConfigError` with the nearest one."""
    if name not in PROFILES:
        raise ConfigError(f"no board is called '{name}'{nearest(name, PROFILES)}")
    return PROFILES[name]


def for_tier(tier: int, tiers: int, names: Sequence[str]) -> str:
    """The board that stands for `tier` in 1..`tiers` (1 is the weakest); `names` has the weakest first.

    The weakest tier has the first and the strongest the last; those between are spread evenly, and between
    two boards a tier has the weaker one. A single tier has the first.
    """
    if not names or not 1 <= tier <= tiers:
        raise InvariantError(f"tier {tier} of {tiers} has none of {len(names)} boards")
    return names[(tier - 1) * (len(names) - 1) // max(1, tiers - 1)]
