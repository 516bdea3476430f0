"""Finds the places in a module's syntax tree where data could be executed as code.

Names are followed through imports and aliases; comments and strings are ignored. The syntax tree
does not show what a library does inside a call, so libraries that unpickle are found by their import.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

CODECS = frozenset(
    {
        "pickle",
        "_pickle",
        "cPickle",
        "pickletools",
        "dill",
        "cloudpickle",
        "joblib",
        "jsonpickle",
        "shelve",
        "marshal",
        "copyreg",
        "yaml",
        "pandas",
    }
)
"""Modules that turn bytes into objects of any class, or read files that way by default."""

TRANSPORTS = frozenset(
    {
        "multiprocessing",
        "concurrent.futures.ProcessPoolExecutor",
        "concurrent.futures.process",
        "ray",
        "torch.multiprocessing",
        "torch.distributed",
        "torch.hub",
        "torch.jit",
        "torch.package",
        "torchvision.datasets",
        "logging.config",
        "xmlrpc",
        "importlib.import_module",
    }
)
"""Library code that unpickles or imports by name: allowed only where `KNOWN` in the test gives a reason."""

EVALUATORS = frozenset({"eval", "exec", "compile", "__import__"})

REQUIRED = {
    "torch.load": ("weights_only", True),
    "numpy.load": ("allow_pickle", False),
    "numpy.lib.format.read_array": ("allow_pickle", False),
}
"""Calls that must set this argument explicitly, because its default has changed before."""


@dataclass(frozen=True)
class Finding:
    """The line and full name of a suspect piece of code."""

    line: int
    name: str


def findings(source: str) -> list[Finding]:
    """Everything in a module's source that could unpickle or evaluate, in line order."""
    nodes = [*ast.walk(ast.parse(source))]
    names = dict(_imported(nodes))
    found = [*_imports(nodes), *_calls(nodes, names)]
    return sorted(set(found), key=lambda finding: (finding.line, finding.name))


def _imported(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """Local names and their full names, such as `np` for `numpy` or `read` for `torch.load`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else ((alias.name.split(".")[0],) * 2)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _imports(nodes: Sequence[ast.AST]) -> Iterator[Finding]:
    for node in nodes:
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            suspect = _suspect(module)
            if suspect is not None:
                yield Finding(node.lineno, suspect)


def _suspect(dotted: str) -> str | None:
    """The codec or transport that a dotted name is or belongs to."""
    parts = dotted.split(".")
    if parts[0] in CODECS:
        return parts[0]
    return next((name for name in TRANSPORTS if f"{dotted}.".startswith(f"{name}.")), None)


def _calls(nodes: Sequence[ast.AST], names: dict[str, str]) -> Iterator[Finding]:
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in EVALUATORS and node.id not in names:
            yield Finding(node.lineno, node.id)
        if isinstance(node, ast.Attribute):
            # A module reached through another one, such as `torch.jit.load` after `import torch`.
            suspect = _suspect(_dotted(node, names))
            if suspect is not None:
                yield Finding(node.lineno, suspect)
        if isinstance(node, ast.Call):
            yield from _call(node, names)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and not _is(node.value, False):
            yield Finding(node.value.lineno, "allow_pickle")


def _call(node: ast.Call, names: dict[str, str]) -> Iterator[Finding]:
    name = _dotted(node.func, names)
    if name in REQUIRED:
        keyword, value = REQUIRED[name]
        if not any(argument.arg == keyword and _is(argument.value, value) for argument in node.keywords):
            yield Finding(node.lineno, name)
    first = node.args[0] if node.args else None
    if name == "importlib.import_module" and isinstance(first, ast.Constant) and isinstance(first.value, str):
        suspect = _suspect(first.value)
        if suspect is not None:
            yield Finding(node.lineno, suspect)


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """The full name of an expression like `np.lib.format`; empty if it is not a plain chain of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])
