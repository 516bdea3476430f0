"""Checks of a factory's input shape."""


def image_shape(input_shape: tuple[int, ...], *, least: int = 1) -> tuple[int, int, int]:
    """The colours, height and width of an image; `ValueError` unless both sides have `least` pixels."""
    if len(input_shape) != 3 or min(input_shape[1:]) < least:
        raise ValueError(f"expected images of (colours, height, width) with sides of {least} or more")
    channels, height, width = input_shape
    return channels, height, width
