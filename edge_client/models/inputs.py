"""The inputs that a network was trained on; imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class InputRecord:
    """What a weights file, or the library that publishes it, states of a network's pictures.

    `size`: height and width in pixels. `mean` and `std`: one per colour, of pixels between 0 and 1; empty if
    nothing is stated. `crop`: the share of a resized picture's side that is cut out of its middle, between 0
    and 1. `interpolation`: how a picture is resized, "bilinear" or "bicubic".
    """

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop: float | None = None
    interpolation: str | None = None
