"""What the process from which others are forked does once for all of them."""

import contextlib
import ctypes
import gc
import pkgutil
import typing
import weakref
from importlib import import_module
from pathlib import Path
from typing import Any

from edge_client.system import plugins
from tests.changes import change_modules

IMPORTED = ("pytest", "xdist.remote", "pytest_timeout", "hypothesis.stateful", "_hypothesis_pytestplugin")
"""What pytest's processes import, beside the packages."""
LATE = ("dp_accounting",)
"""What pytest's processes import with their first recipe that has privacy: it takes a second."""
NOT_IMPORTED = ("edge_client.training.flower", "edge_server.simulation.ray_engine")
"""Modules whose libraries take seconds to import, which few tests need."""
NO_OUTPUT = ("-p", "no:terminal", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-s")
"""Options of a pytest that prints nothing and leaves nothing behind."""
ROOT = Path(__file__).parents[2]
MADV_COLLAPSE = 25
HUGE_PAGE = 2 << 20


class _TestImport:
    """A plugin of pytest that imports the tests in place of collecting them."""

    def pytest_collection(self) -> bool:
        """Import the modules of tests, and read of them what hypothesis reads."""
        import pytest
        from hypothesis.internal.conjecture import providers

        for path in sorted((ROOT / "tests").rglob("test_*.py")):
            # The process that collects the tests reports what cannot be imported.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        providers._get_local_constants()
        return True


def prepare(*, tests: bool) -> None:
    """Import the packages, and what pytest imports.

    `tests`: also the modules of tests, and what torch imports for its first graph.
    """
    for package in ("schemas", "edge_client", "edge_server"):
        _import_modules(package)
    with contextlib.suppress(ImportError):
        for name in (*IMPORTED, *(LATE if tests else ())):
            import_module(name)
    change_modules()
    if tests:
        _import_tests()
        _draw()
    _build_models()
    _forget_endings()
    # A process may have plugins of its own.
    plugins.plugins.cache_clear()
    gc.collect()
    gc.freeze()
    _join_pages()


def _import_modules(package: str) -> None:
    found = pkgutil.walk_packages(import_module(package).__path__, f"{package}.", onerror=lambda name: None)
    for module in found:
        if not module.name.startswith(NOT_IMPORTED) and not module.name.endswith("__main__"):
            # Some need a library that is not installed.
            with contextlib.suppress(ImportError):
                import_module(module.name)


def _import_tests() -> None:
    """Import the modules of tests as pytest does, which changes every `assert`: it takes seconds."""
    import pytest

    pytest.main([*NO_OUTPUT, "--noconftest", "-o", "addopts="], plugins=[_TestImport()])


def _draw() -> None:
    """Draw a small network and a training step of it: torch's first graph takes three seconds longer."""
    from edge_client.inference.export.graph_export import draw_graph
    from edge_client.models.build import build_model
    from edge_client.training.step_graphs.drawing.step import draw_step
    from schemas.values import ModelSpec

    model = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10)
    draw_graph(build_model(model), model.input_shape)
    draw_step(build_model(model), model.input_shape)


def _build_models() -> None:
    """Build the validators of all models, which a process otherwise builds as it first uses them."""
    from schemas.base import Frozen

    kinds: list[type[Frozen]] = [Frozen]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if not kind.__pydantic_complete__:
            kind.model_rebuild(raise_errors=False)


def _forget_endings() -> None:
    """Leave out, as a child ends, what imports want done then.

    Torch would remove 200 libraries of operators, and nanobind would empty the caches of `typing`: both free
    memory only, and their writes copy 45 MB of this process's memory for each child.
    """
    finalizers: Any = weakref.finalize
    for finalizer, call in finalizers._registry.items():
        if getattr(call.func, "__module__", "") == "torch.library":
            finalizer.atexit = False
    getattr(typing, "_cleanups", []).clear()


def _join_pages() -> None:
    """Join this process's memory into huge pages: a fork and its end take 15 ms in place of 55 ms.

    Kernels before 6.1 cannot.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, *_ = line.split()
        first, last = (int(address, 16) for address in addresses.split("-"))
        first, last = -(-first // HUGE_PAGE) * HUGE_PAGE, last // HUGE_PAGE * HUGE_PAGE
        if rights == "rw-p" and first < last:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE)
