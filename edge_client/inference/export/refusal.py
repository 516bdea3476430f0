"""The error of an export."""

from schemas.errors import EdgeError


class ExportRefused(EdgeError):
    """The network cannot be exported, or its ONNX form computes something else; no file was written."""
