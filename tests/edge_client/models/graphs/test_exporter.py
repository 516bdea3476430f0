"""Why torch's exporter failed, in one line that holds the reason."""

from itertools import pairwise

import pytest

from edge_client.models.graphs.exporter import reason_of

ADVICE = "Failed to convert the exported program to ONNX. \x1b[96mThis is step 3/3\x1b[0m: next steps\n- one"


def failed(*words: str) -> BaseException:
    """The error that the exporter raises, whose innermost cause comes last."""
    errors = [RuntimeError(text) for text in (ADVICE, *words)]
    for outer, inner in pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


@pytest.mark.parametrize(
    ("operator", "remedy"),
    [
        ("aten.adaptive_max_pool2d", "a pool to a size that divides its input's, or AdaptiveAvgPool2d(1)"),
        ("aten._linalg_svd", "other layers in its place"),
        ("prims.bessel_i0", "other layers in its place"),
    ],
)
def test_an_operator_that_onnx_lacks_is_named_with_what_takes_its_place(operator: str, remedy: str) -> None:
    missing = (
        f"No ONNX function found for <OpOverload(op='{operator}', overload='default')>. Failure message: No "
        "decompositions registered"
    )
    name = operator.partition(".")[2]
    assert reason_of(failed("Error when translating node", missing)) == (
        f"ONNX has no operator for {name}: use {remedy}"
    )


def test_any_other_error_says_what_its_innermost_cause_does() -> None:
    assert reason_of(failed("Could not guard on data\nUser code: ...")) == "Could not guard on data"
    assert reason_of(KeyError("order")) == "'order'"
