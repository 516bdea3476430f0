"""Loads a user's own code: networks, data sources, Flower apps."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

# Ensures that `import schemas` finds the package that ships with this one.

NAME = "schemas"
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 (a quick import)
"""The folder of `edge_client` and `schemas`."""


def claim_schemas() -> None:
    """Import our `schemas`; `ImportError` if another module of that name is already imported."""
    known = sys.modules.get(NAME)
    if known is None:
        sys.path.insert(0, HOME)
        try:
            __import__(NAME)
        finally:
            sys.path.remove(HOME)
        return
    path = getattr(known, "__file__", None)
    if not _is_ours(path):
        raise ImportError(
            f"a module called '{NAME}' is imported already, from {path}, and hides the package '{NAME}' of "
            f"edge-federation in {HOME}: rename that module",
            name=NAME,
            path=path,
        )


def hidden_by_ours(error: BaseException) -> str:
    """The remedy if the user's code fails because it needs its own `schemas`; otherwise empty."""
    if isinstance(error, ImportError):
        wanted = (error.name or "").partition(".")[0] == NAME
    else:
        wanted = isinstance(error, AttributeError) and error.obj is sys.modules.get(NAME)
    path = _foreign() if wanted else None
    return f"; {path} is hidden by the package '{NAME}' of edge-federation: rename it" if path else ""


def _foreign() -> str | None:
    """The first other module of that name in Python's search path."""
    for folder in sys.path:
        for name in (os.path.join(NAME, "__init__.py"), f"{NAME}.py"):  # noqa: PTH118
            path = os.path.join(os.path.abspath(folder), name)  # noqa: PTH100, PTH118
            if os.path.isfile(path) and not _is_ours(path):  # noqa: PTH113
                return path
    return None


def _is_ours(path: str | None) -> bool:
    ours = os.path.join(HOME, NAME, "__init__.py")  # noqa: PTH118
    return path is not None and os.path.realpath(path) == os.path.realpath(ours)


# Exceptions that foreign code may raise; a script without a guard for `__main__` may even exit.
FAILS = (Exception, SystemExit)


def import_users(name: str) -> ModuleType:
    """Import a module from Python's search path, or else from the current folder; raises its exceptions."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def users_function(reference: str, *, what: str) -> Callable[..., object]:
    """The function named by `module:function`; `ConfigError` that starts with `what`."""
    # Not above: `claim_schemas` has to run before anything of `schemas` is imported.
    from schemas.errors import ConfigError, near

    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise ConfigError("expected module:function", key=what)
    try:
        module = import_users(module_name)
    except FAILS as error:
        raise ConfigError(_why(error, module_name), key=what) from error
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    match = near(name, [key for key, value in vars(module).items() if callable(value) and key[:1] != "_"])
    hint = f" (did you mean {match!r}?)" if match else ""
    hidden = hidden_by_ours(AttributeError(name, name=name, obj=module))
    file = getattr(module, "__file__", module.__name__)
    raise ConfigError(f"{file} has no function {name!r}{hint}{hidden}", key=what)


def _why(error: BaseException, module: str) -> str:
    """Why a module could not be imported: it is missing, or it fails."""
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return (
            f"there is no module {error.name!r}: install it, put its folder in PYTHONPATH, or start this "
            f"command in the folder where it lies{hidden_by_ours(error)}"
        )
    return f"importing {module!r} failed: {error!r}{hidden_by_ours(error)}"
