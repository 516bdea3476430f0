"""Settings and errors of torch's ONNX exporter, which all drawings share."""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator

from edge_client.models.graphs.checks import first_line

MISSING = re.compile(r"No ONNX function found for <OpOverload\(op='\w+\.(\w+)'")
EVEN = "a pool to a size that divides its input's, or AdaptiveAvgPool2d(1)"
REMEDIES = {"adaptive_max_pool": EVEN, "adaptive_avg_pool": EVEN, "_adaptive_avg_pool": EVEN}
"""What takes the place of operators that ONNX lacks, by the beginnings of their names."""


def reason_of(error: BaseException) -> str:
    """Why the exporter failed: what its innermost cause says, since it wraps that in general advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    missing = MISSING.search(str(error))
    if missing is None:
        return first_line(error)
    remedies = (remedy for name, remedy in REMEDIES.items() if missing[1].startswith(name))
    return f"ONNX has no operator for {missing[1]}: use {next(remedies, 'other layers in its place')}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the exporter's prints, warnings and log lines; errors are still raised."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
