"""What becomes full brightness of picture files, as a source and a federation state it."""

import math

from schemas.errors import ConfigError
from schemas.values import MIN_MAX, PictureScale

FULL = "full"  # the default: the full range of each file's type


def parsed_scale(text: str, *, source: str) -> PictureScale | None:
    """The scale that an option states: `full` (None), `min-max`, or a factor such as `1/4095`."""
    if text == FULL:
        return None
    if text == MIN_MAX:
        return MIN_MAX
    numerator, _, denominator = text.partition("/")
    try:
        factor = float(numerator) / float(denominator or 1)
    except (ValueError, ZeroDivisionError, OverflowError):
        factor = 0.0
    if not 1e-12 <= factor <= 1e12:
        raise ConfigError(
            f"scale={text} must be {FULL}, {MIN_MAX}, or a positive factor such as 1/4095", place=source
        )
    return factor


def scale_in_words(scale: PictureScale | None) -> str:
    """As `parsed_scale` reads it."""
    if scale is None or isinstance(scale, str):
        return FULL if scale is None else scale
    largest = round(1 / scale)
    return f"1/{largest}" if largest > 1 and math.isclose(scale * largest, 1) else f"{scale:.12g}"


def scale_misfit(own: PictureScale | None, common: PictureScale | None) -> str:
    """Why pictures scaled so do not fit a federation; empty if they do."""
    is_alike = isinstance(own, float) and isinstance(common, float) and math.isclose(own, common)
    if own == common or is_alike:
        return ""
    return (
        f"the federation takes pictures with scale={scale_in_words(common)}, this data has "
        f"scale={scale_in_words(own)}: state the same behind folder:PATH? or npz:PATH?, "
        "or as [data] picture-scale"
    )
