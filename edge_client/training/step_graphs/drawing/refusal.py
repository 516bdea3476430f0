"""Why a step cannot be drawn."""

from schemas.errors import EdgeError


class DrawingRefused(EdgeError):
    """The step cannot be drawn, or its graph computes something else than torch."""
