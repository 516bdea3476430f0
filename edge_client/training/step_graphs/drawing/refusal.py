"""Why a step cannot be drawn."""

from schemas.errors import EdgeError


class DrawingRefused(EdgeError):
    """The step cannot be drawn, or its graph computes something else than torch."""


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its class."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
