"""Changes to modules that make tests cheaper, as soon as these modules are imported.

Torch's exporter looks up all its operators for each graph, and their signatures for each node; tests, which
draw many, look them up once. Devices
time each file that is delivered to them for 0.4 s; in tests, which never assert a duration, for less.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MEASURED_S = 0.02
"""Seconds for which a test measures how fast something is."""


def change_modules() -> None:
    """Change the modules of `CHANGES`, those that are imported later too.

    Torch imports its exporter, which takes a second, with the first graph.
    """
    if any(isinstance(finder, _ChangesAfterImport) for finder in sys.meta_path):
        return
    for name, change in CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])
    sys.meta_path.insert(0, _ChangesAfterImport())


class _ChangesAfterImport(MetaPathFinder):
    """Finds the modules of `CHANGES`, and changes them after their import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in CHANGES:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            _add_change(found.loader, CHANGES[fullname])
        return found


def _add_change(loader: Any, change: Callable[[Any], None]) -> None:
    run = loader.exec_module

    def run_and_change(module: ModuleType) -> None:
        run(module)
        change(module)

    loader.exec_module = run_and_change


def _keep_table(registration: Any) -> None:
    """Keep the exporter's table of operators; each graph gets a copy."""
    registry = getattr(registration, "ONNXRegistry", None)
    # A release of torch that has no such table draws as it does.
    if not hasattr(registry, "from_torchlib"):
        return
    find = cache(registry.from_torchlib)

    def table(*given: Any, **named: Any) -> Any:
        found, copy = find(*given, **named), registry()
        vars(copy).update(vars(found))
        copy.functions = {name: [*functions] for name, functions in found.functions.items()}
        return copy

    registry.from_torchlib = staticmethod(table)


def _keep_operators(utils: Any) -> None:
    """Fill `torch.ops` once with all operators that the dispatcher knows, not 50 times for each graph."""
    if hasattr(utils, "_materialize_cpp_cia_ops"):
        utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)


def _keep_signatures(schemas: Any) -> None:
    """Read each operator's signature once, not for each of a graph's nodes: a tenth of the time to draw."""
    signature = getattr(schemas, "OpSignature", None)
    if not hasattr(signature, "from_op_schema"):
        return
    read, signatures = signature.from_op_schema, dict[tuple[str, str, int], Any]()

    def once(schema: Any) -> Any:
        key = schema.domain, schema.name, schema.since_version
        if key not in signatures:
            signatures[key] = read(schema)
        return signatures[key]

    signature.from_op_schema = staticmethod(once)


def _keep_protocols(typing: Any) -> None:
    """Collect a protocol's attributes once, as Python 3.12 does; they are asked for each value of a graph."""
    if hasattr(typing, "_get_protocol_attrs"):
        typing._get_protocol_attrs = cache(typing._get_protocol_attrs)


def _time_briefly(benchmark: Any) -> None:
    """Time models for a moment, several times at least."""
    measure = benchmark.time_runs

    def durations(runs: Any, seconds: float, *, least: int = 1, most: int | None = None) -> Any:
        return measure(runs, min(seconds, MEASURED_S), least=least, most=most)

    benchmark.time_runs = durations


CHANGES: dict[str, Callable[[Any], None]] = {
    "torch.onnx._internal.exporter._registration": _keep_table,
    "torch._export.utils": _keep_operators,
    "onnx_ir.schemas": _keep_signatures,
    "typing": _keep_protocols,
    "edge_client.inference.benchmark": _time_briefly,
}
