"""The library: what `import edge_server` offers."""

import inspect
import re
from typing import Any

import edge_server
from deploy.docs.generator.markdown import page


def python_page() -> str:
    """Every public name of `edge_server`, with its signature and its docstring."""
    _, _, example = (edge_server.__doc__ or "").partition("\n\n")
    intro = "The server's package is a library, too. [The notebook](../../examples/library.ipynb) uses it."
    code = f"```python\n{inspect.cleandoc(example)}\n```"
    return page("Python", intro, code, *(_section(name) for name in edge_server.__all__))


def _section(name: str) -> str:
    thing = getattr(edge_server, name)
    parts = [f"## edge_server.{name}", inspect.getdoc(thing) or ""]
    if inspect.isfunction(thing):
        parts.insert(1, f"```python\n{name}{_signature(thing)}\n```")
    else:
        members = [
            f"- `{key}`: {inspect.getdoc(value) or ''}"
            for key, value in vars(thing).items()
            if isinstance(value, property)
        ]
        parts.append("\n".join(members))
    return "\n\n".join(part for part in parts if part)


def _signature(thing: Any) -> str:
    """A signature with the names of types, without their modules."""
    return re.sub(r"\b(?:[a-z_0-9]+\.)+([A-Z])", r"\1", str(inspect.signature(thing)))
