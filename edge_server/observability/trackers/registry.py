"""The writers by name."""

from collections.abc import Callable

from edge_server.observability.trackers.writers import Writer
from schemas.errors import ConfigError, nearest


def _tensorboard(target: str) -> Writer:
    from edge_server.observability.trackers.writers import TensorBoardWriter

    return TensorBoardWriter(target)


def _mlflow(target: str) -> Writer:
    from edge_server.observability.trackers.writers import MlflowWriter

    return MlflowWriter(target)


def _wandb(target: str) -> Writer:
    from edge_server.observability.trackers.writers import WandbWriter

    return WandbWriter(target)


WRITERS: dict[str, Callable[[str], Writer]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}  # Each name is also that of the extra that installs the package


def make_writer(word: str) -> Writer:
    """The writer for `NAME=TARGET`; raises `ConfigError` for an unknown name or a missing package."""
    name, _, target = word.partition("=")
    if name not in WRITERS:
        raise ConfigError(f"there is no writer '{name}'{nearest(name, WRITERS)}", key=f"--write {word}")
    if not target:
        raise ConfigError(
            "name the destination, for instance --write tensorboard=runs/tensorboard", key=f"--write {word}"
        )
    try:
        return WRITERS[name](target)
    except ModuleNotFoundError as error:
        remedy = f"pip install 'edge-federation[{name}]'"
        raise ConfigError(
            f"this needs {error.name}, which is not installed", key=f"--write {word}", remedy=remedy
        ) from error
