"""Packages that only notebooks need, and the error without them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame as DataFrame


def data_frame(rows: Sequence[Mapping[str, Any]], index: Sequence[str] | None = None) -> "DataFrame":
    """The rows, which have equal keys, as a table; `ConfigError` without pandas."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise _missing("pandas", error) from error
    return DataFrame(rows, index=index)


def new_axes() -> "Axes":
    """Empty axes of a new figure, which a notebook shows; `ConfigError` without matplotlib."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise _missing("matplotlib", error) from error
    return pyplot.subplots()[1]


def _missing(package: str, error: ImportError) -> ConfigError:
    return ConfigError(f"this needs {package} ({error})", remedy="pip install 'edge-federation[notebook]'")
