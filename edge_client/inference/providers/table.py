"""Every execution provider of onnxruntime that a device may try, and which of them a user asks for.

onnxruntime is imported only where it is asked what it offers: a device's start reads this table without it.
"""

import mmap
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT, text
from schemas.errors import ConfigError

AUTO = "auto"
THREADS, ENGINES = "THREADS", "ENGINES"  # values of options that a session's threads and folder replace


def nvidia_driver(root: Path) -> str:
    """The driver of a card, and the release of a Jetson's system, which includes its driver and libraries."""
    lines = (text(root / "proc/driver/nvidia/version"), text(root / "etc/nv_tegra_release"))
    return " ".join(line.splitlines()[0][:200] for line in lines if line)


def kernel(root: Path) -> str:
    """The kernel's release, which its drivers belong to; of macOS the release of the system."""
    return text(root / "proc/sys/kernel/osrelease") or platform.mac_ver()[0]


@dataclass(frozen=True)
class Provider:
    """One execution provider.

    `runtime_name`: its name in onnxruntime. `package`: what to install for it. `stated`: its options.
    `builds_engines`: it keeps what it builds, so that the next start is quick. `driver(root)`: the version of
    what it needs besides onnxruntime. `before`: providers that take the operators that it lacks.
    """

    name: str
    runtime_name: str
    package: str
    stated: Mapping[str, str] = field(default_factory=dict)
    driver: Callable[[Path], str] = lambda root: ""
    before: tuple[str, ...] = ()

    @property
    def builds_engines(self) -> bool:
        return ENGINES in self.stated.values()

    def options(self, threads: int | None, engines: str) -> dict[str, str]:
        """Its options for a number of threads, None for its own choice, and a folder for what it builds."""
        given = {THREADS: None if threads is None else str(threads), ENGINES: engines}
        filled = {name: given.get(value, value) for name, value in self.stated.items()}
        return {name: value for name, value in filled.items() if value is not None}


CPU = Provider("cpu", "CPUExecutionProvider", "onnxruntime")
NVIDIA_PACKAGE = "onnxruntime-gpu (on a Jetson NVIDIA's wheel for its JetPack)"
PROVIDERS: Mapping[str, Provider] = {
    row.name: row
    for row in (
        Provider(
            "tensorrt",
            "TensorrtExecutionProvider",
            NVIDIA_PACKAGE,
            # Half precision stays off, as it is by default: the variant `fp16` states it in the file.
            {
                "trt_engine_cache_enable": "1",
                "trt_engine_cache_path": ENGINES,
                "trt_timing_cache_enable": "1",
                "trt_timing_cache_path": ENGINES,
            },
            driver=nvidia_driver,
            before=("cuda",),
        ),
        Provider(
            "cuda",
            "CUDAExecutionProvider",
            NVIDIA_PACKAGE,
            # Without TF32, which has 10 bits; the search of cuDNN for the fastest kernels is short.
            {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"},
            driver=nvidia_driver,
        ),
        Provider(
            "openvino",
            "OpenVINOExecutionProvider",
            "onnxruntime-openvino",
            # In 32 bits even where the processor has bfloat16. Its cache saves nothing there.
            {"device_type": "CPU", "precision": "FP32", "num_of_threads": THREADS},
        ),
        Provider("qnn", "QNNExecutionProvider", "onnxruntime-qnn", {"backend_type": "htp"}, driver=kernel),
        Provider(
            "coreml",
            "CoreMLExecutionProvider",
            "onnxruntime for macOS",
            {"ModelFormat": "MLProgram", "ModelCacheDirectory": ENGINES},
            driver=kernel,
        ),
        Provider(
            "xnnpack",
            "XnnpackExecutionProvider",
            "a build of onnxruntime with XNNPACK",
            {"intra_op_num_threads": THREADS},
        ),
        Provider("acl", "ACLExecutionProvider", "a build of onnxruntime with the Arm Compute Library"),
        CPU,
    )
}
"""By name, in the order in which they are tried: the fastest where it is there comes first, the CPU last."""


@dataclass(frozen=True)
class ProviderSettings:
    """What the user asks for: `auto`, or providers in the order of preference. The CPU always follows."""

    names: tuple[str, ...] = (AUTO,)

    def __post_init__(self) -> None:
        """Raises `ConfigError` without a name."""
        if not self.names:
            raise ConfigError("the list is empty", key="providers", remedy='state "auto", or "cpu" alone')

    @property
    def is_stated(self) -> bool:
        return AUTO not in self.names

    def accelerators(self, available: Sequence[str] | None = None) -> tuple[Provider, ...]:
        """The providers to try besides the CPU; `available` are onnxruntime's names, by default as it says.

        Raises `ConfigError` for one that is asked for and not there.
        """
        if self == CPU_ALONE:
            return ()
        available = available_providers() if available is None else available
        here = [row for row in PROVIDERS.values() if row is not CPU and row.runtime_name in available]
        if not self.is_stated:
            return tuple(here)
        for name in self.names:
            if PROVIDERS[name] not in (*here, CPU):
                there = ", ".join([*(row.name for row in here), CPU.name])
                raise ConfigError(
                    f"this onnxruntime has no {name}, it has {there}",
                    key=f"--providers {name}",
                    remedy=f"install {PROVIDERS[name].package} in place of onnxruntime",
                )
        wanted = self.names[: self.names.index(CPU.name)] if CPU.name in self.names else self.names
        return tuple(PROVIDERS[name] for name in dict.fromkeys(wanted))


CPU_ALONE = ProviderSettings((CPU.name,))
ANY_PROVIDER = ProviderSettings()


def available_providers() -> list[str]:
    """The names of the providers that the installed onnxruntime was built with."""
    import onnxruntime

    available: list[str] = onnxruntime.get_available_providers()
    return available


def power_mode(root: Path = ROOT) -> str:
    """The board's power mode: of a Jetson, of a computer's firmware, of the processor's clock."""
    places = (
        "var/lib/nvpmodel/status",
        "sys/firmware/acpi/platform_profile",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    )
    return " ".join(filter(None, (text(root / place)[:100] for place in places)))


def may_make_code() -> bool:
    """Whether this process may have memory that it writes and executes."""
    try:
        mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    except OSError:
        return False
    return True


def circumstances(rows: Sequence[Provider], runtime: str, root: Path = ROOT) -> dict[str, str]:
    """What a choice holds for: onnxruntime's version, its providers, their drivers, the power mode.

    And for a process that may make code, as OpenVINO does; systemd's `MemoryDenyWriteExecute` forbids it.
    """
    drivers = {f"driver of {row.name}": row.driver(root) for row in rows}
    names = ",".join(row.name for row in rows)
    stated = {"onnxruntime": runtime, "providers": names, "power": power_mode(root)}
    if not may_make_code():
        stated["code at run time"] = "forbidden"
    return {name: value for name, value in {**stated, **drivers}.items() if value}
