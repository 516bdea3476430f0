"""Requests for Grad-CAM images: whether they can be computed, one process at a time, answers cached."""

import asyncio
import json
import os
import sys
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edge_server.observability.dashboard.run_reader import FolderFacts
from schemas.errors import EdgeError

MAX_IMAGES = 32
KEPT = 16  # Maximum cached answers of a few dozen kilobytes each
PATIENCE_S = 120.0
THREADS = "1"
KERNEL_AXES = 4  # Axes of a 2-d convolution's weights


class GradCamUnavailable(EdgeError):
    """The images cannot be computed; the message gives the reason."""


def why_not(facts: FolderFacts) -> str:
    """Why Grad-CAM cannot be computed here; empty if nothing speaks against it."""
    config = facts.config
    if config is None or facts.channels is None:
        return "there is no model yet"
    if config.data.source is None:
        return "the server has no test data: the federation file names no [data] source"
    kernels = (len(layout.shape) for layout in facts.channels.parameters.values())
    if KERNEL_AXES not in kernels:
        return f"{config.model.name} has no convolution, and Grad-CAM looks at one's maps"
    module, colon, _ = config.model.name.partition(":")
    for name in ("torch", *([module.partition(".")[0]] if colon else [])):
        if find_spec(name) is None:
            return f"{name} cannot be imported here"
    return ""


class GradCamRequests:
    """Computes and caches the images of one run."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lock = asyncio.Lock()
        self._known: OrderedDict[tuple[str, int, int], dict[str, Any]] = OrderedDict()

    async def images(self, version: str, tier: int, count: int) -> dict[str, Any]:
        """Grad-CAM of a version's tier (0: the global model); raises `GradCamUnavailable` with the reason."""
        key = version, tier, count
        async with self._lock:
            if key not in self._known:
                self._known[key] = await self._compute_pictures(tier, count)
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return self._known[key]

    async def _compute_pictures(self, tier: int, count: int) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "edge_server.observability.dashboard.grad_cam_process",
                str(self._run),
                str(tier),
                str(count),
            ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": THREADS},
        )
        try:
            out, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        except TimeoutError as error:
            raise GradCamUnavailable(f"computing the images took more than {PATIENCE_S:.0f} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise GradCamUnavailable(
                lines[-1] if lines else f"computing them ended with {process.returncode}"
            )
        answer: dict[str, Any] = json.loads(out)
        return answer
