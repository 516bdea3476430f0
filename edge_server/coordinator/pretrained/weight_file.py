"""Weights from elsewhere, and why a source of them is refused."""

from dataclasses import dataclass

from edge_client.models.registry import InputRecord
from schemas.errors import ConfigError
from schemas.tensors.arrays import LazyArrays

KEY = "[model] from"


@dataclass(frozen=True)
class WeightFile:
    """The `arrays` of a source by the names that it gives them, made when they are read.

    Numbers with a point are float32, whatever the source holds. `stated` is how the user names it, `classes`
    are the names of its outputs in their order, `sha256` is the digest of its bytes, hex.
    """

    arrays: LazyArrays
    stated: str
    sha256: str
    inputs: InputRecord | None = None
    classes: tuple[str, ...] = ()


def refuse(reason: str, remedy: str) -> ConfigError:
    """The error of a source that is not taken."""
    return ConfigError(reason, key=KEY, remedy=remedy)


def one_line(error: BaseException) -> str:
    """What a library says of a failure, in a line."""
    said = getattr(error, "reason", error)  # of a URL that does not open
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
