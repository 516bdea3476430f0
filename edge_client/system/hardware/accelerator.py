"""Detects an accelerator."""

from __future__ import annotations

from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT

NVIDIA = ("dev/nvidia0", "dev/nvhost-gpu", "dev/nvgpu")
"""Device files of a card, a Jetson, and a Jetson with a newer kernel."""


def accelerator(root: Path = ROOT) -> str | None:
    """`cuda` if there is an NVIDIA device."""
    return "cuda" if any((root / path).exists() for path in NVIDIA) else None
