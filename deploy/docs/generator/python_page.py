"""The library: what `import edge_server` offers."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import edge_server
from deploy.docs.generator.markdown import page


def python_page() -> str:
    """Every public name of `edge_server`, with its signature and its docstring."""
    _, _, example = (edge_server.__doc__ or "").partition("\n\n")
    intro = (
        "The server's package is a library, too. [Simulation](../guides/compare/simulation.md#from-python) "
        "and [the notebook](../../examples/library.ipynb) use it; scripts need no guard for `__main__`."
    )
    code = f"```python\n{inspect.cleandoc(example)}\n```"
    return page("Python", intro, code, *(_section(name) for name in edge_server.__all__))


def _section(name: str) -> str:
    thing = getattr(edge_server, name)
    parts = [f"## edge_server.{name}", inspect.getdoc(thing) or ""]
    if inspect.isfunction(thing):
        parts.insert(1, f"```python\n{name}{_signature(thing)}\n```")
    else:
        parts.append("\n".join(_members(thing)))
    return "\n\n".join(part for part in parts if part)


def _members(thing: type) -> Iterator[str]:
    """The properties of a class, and the methods of a value that is made to be shown."""
    for key, value in vars(thing).items():
        is_method = is_dataclass(thing) and inspect.isfunction(value) and not key.startswith("_")
        if isinstance(value, property) or is_method:
            doc = (inspect.getdoc(value) or "").replace("\n\n", " ").replace("\n", " ")
            yield f"- `{key}{_signature(value) if is_method else ''}`: {doc}"


def _signature(thing: Any) -> str:
    """A signature with the names of types, without their modules, quotes and `self`."""
    signature = re.sub(r"\b(?:[a-z_0-9]+\.)+([A-Z])", r"\1", str(inspect.signature(thing)))
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature).replace("(self, ", "(")
