"""Finds a Flower app by its reference, or by the pyproject.toml of its folder."""

import importlib.util
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_client.system.schemas_package import hidden_by_ours
from edge_client.system.user_code import FAILS, import_users
from edge_client.training.flower.settings import UserConfig, app_table, flat_config
from schemas.errors import ConfigError

# Flower reads this once, when it is imported; a device must not report its use.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

DEEPEST = 4
"""Number of folders above an app's module that are searched for its pyproject.toml."""


@dataclass(frozen=True, eq=False)
class LoadedApp:
    """A `ClientApp`, and the `[tool.flwr.app.config]` of its project."""

    app: Any
    run_config: UserConfig = field(default_factory=dict)

    def has(self, action: str) -> bool:
        """Whether the app can `train` or `evaluate`; an app made of a `client_fn` can do both."""
        functions = getattr(self.app, "_registered_funcs", {})
        return self.is_legacy or f"{action}.default" in functions

    @property
    def is_legacy(self) -> bool:
        """Whether the app was made of a `client_fn`, which takes Flower's older messages."""
        return getattr(self.app, "_call", None) is not None


def load_app(name: str) -> LoadedApp:
    """Import an app; raises `ConfigError` with the remedy."""
    if importlib.util.find_spec("flwr") is None:
        raise ConfigError("--flower needs Flower: pip install 'edge-federation[flower]'")
    reference, folder = _reference(name)
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"--flower '{name}': expected package.module:app, or the folder of a Flower app")
    try:
        module = import_users(module_name)
    except FAILS as error:
        raise ConfigError(
            f"--flower {name}: importing {module_name!r} failed ({error}); check that it is installed or "
            f"that its folder is in PYTHONPATH{hidden_by_ours(error)}"
        ) from error
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    loaded = LoadedApp(_checked(found, name, reference), _run_config(module, folder))
    if not loaded.has("train"):
        raise ConfigError(f"--flower {name}: the app registers no function to train with: write @app.train()")
    return loaded


def _reference(name: str) -> tuple[str, Path | None]:
    """The app's reference; a folder's is in its pyproject.toml, and the folder becomes importable."""
    folder = Path(name)
    if not folder.is_dir():
        return name, None
    components = app_table(folder).get("components")
    reference = components.get("clientapp") if isinstance(components, dict) else None
    if not isinstance(reference, str):
        raise ConfigError(
            f"--flower {name}: {folder / 'pyproject.toml'} names no clientapp in [tool.flwr.app.components]"
        )
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    return reference, folder


def _checked(found: Any, name: str, reference: str) -> Any:
    from flwr.clientapp import ClientApp

    if not isinstance(found, ClientApp):
        kind = "nothing" if found is None else f"a {type(found).__name__}"
        raise ConfigError(f"--flower {name}: {reference} is {kind}, not a flwr.clientapp.ClientApp")
    return found


def _run_config(module: Any, folder: Path | None) -> UserConfig:
    """The defaults of the app's project."""
    source = getattr(module, "__file__", None)
    above = list(Path(source).resolve().parents)[:DEEPEST] if source else []
    for place in [*([folder] if folder else []), *above]:
        if table := app_table(place):
            return flat_config(table.get("config"))
    return {}
