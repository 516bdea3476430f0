"""Loads a user's own code: networks, data sources, Flower apps."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from edge_client.system.schemas_package import hidden_by_ours
from schemas.errors import ConfigError, near

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
