"""Every execution provider of onnxruntime that a device may try, and which of them a user asks for.

onnxruntime is imported only where it is asked what it offers: a device's start reads this table without it.
"""

import mmap
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT, text
from schemas.errors import ConfigError

Options = Callable[[int | None, str], Mapping[str, str]]
AUTO = "auto"


def _no_options(threads: int | None, engines: str) -> Mapping[str, str]:
    return {}


def _part_of_runtime(root: Path) -> str:
    """There is no driver: the provider's code is all in onnxruntime."""
    return ""


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

    `runtime_name`: its name in onnxruntime. `package`: what to install for it. `options(threads, engines)`:
    its options for a number of threads, None for its own choice, with a folder for what it builds.
    `builds_engines`: it keeps what it builds there, so that the next start is quick. `driver(root)`: the
    version of what it needs besides onnxruntime. `before`: providers that take the operators that it lacks.
    """

    name: str
    runtime_name: str
    package: str
    options: Options = _no_options
    builds_engines: bool = False
    driver: Callable[[Path], str] = _part_of_runtime
    before: tuple[str, ...] = ()


def _tensorrt(threads: int | None, engines: str) -> Mapping[str, str]:
    """Half precision stays off, as it is by default: the variant `fp16` states it in the file."""
    cache = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": engines}
    return {**cache, "trt_timing_cache_enable": "1", "trt_timing_cache_path": engines}


def _cuda(threads: int | None, engines: str) -> Mapping[str, str]:
    """Without TF32, which has 10 bits; the search of cuDNN for the fastest kernels is short."""
    return {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}


def _openvino(threads: int | None, engines: str) -> Mapping[str, str]:
    """On the processor, in 32 bits even where it has bfloat16.

    Its cache saves nothing there: the processor's plugin compiles what it reads from it again.
    """
    stated = {} if threads is None else {"num_of_threads": str(threads)}
    return {"device_type": "CPU", "precision": "FP32", **stated}


def _coreml(threads: int | None, engines: str) -> Mapping[str, str]:
    return {"ModelFormat": "MLProgram", "ModelCacheDirectory": engines}


def _qnn(threads: int | None, engines: str) -> Mapping[str, str]:
    return {"backend_type": "htp"}


def _xnnpack(threads: int | None, engines: str) -> Mapping[str, str]:
    return {} if threads is None else {"intra_op_num_threads": str(threads)}


CPU = Provider("cpu", "CPUExecutionProvider", "onnxruntime")
NVIDIA_PACKAGE = "onnxruntime-gpu (on a Jetson NVIDIA's wheel for its JetPack)"
PROVIDERS: Mapping[str, Provider] = {
    row.name: row
    for row in (
        Provider(
            "tensorrt",
            "TensorrtExecutionProvider",
            NVIDIA_PACKAGE,
            _tensorrt,
            builds_engines=True,
            driver=nvidia_driver,
            before=("cuda",),
        ),
        Provider("cuda", "CUDAExecutionProvider", NVIDIA_PACKAGE, _cuda, driver=nvidia_driver),
        Provider("openvino", "OpenVINOExecutionProvider", "onnxruntime-openvino", _openvino),
        Provider("qnn", "QNNExecutionProvider", "onnxruntime-qnn", _qnn, driver=kernel),
        Provider(
            "coreml",
            "CoreMLExecutionProvider",
            "onnxruntime for macOS",
            _coreml,
            builds_engines=True,
            driver=kernel,
        ),
        Provider("xnnpack", "XnnpackExecutionProvider", "a build of onnxruntime with XNNPACK", _xnnpack),
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
