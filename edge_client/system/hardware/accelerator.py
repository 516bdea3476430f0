"""Whether there is something faster than the processor."""

from __future__ import annotations

from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT

NVIDIA = ("dev/nvidia0", "dev/nvhost-gpu", "dev/nvgpu")
"""A card, a Jetson, and a Jetson with a newer kernel."""


def accelerator(root: Path = ROOT) -> str | None:
    """`cuda` where there is an NVIDIA device."""
    return "cuda" if any((root / path).exists() for path in NVIDIA) else None
