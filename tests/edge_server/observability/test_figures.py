"""What is said of a whole run."""

import pytest

from edge_server.observability.figures import warning_texts
from edge_server.storage.records import DeviceRecord
from schemas.values import Personalisation
from tests.edge_server.observability.terminal.shown import record


def device(name: str, accuracy: float | None, *, personal: bool = False) -> DeviceRecord:
    changed = Personalisation(kept=True) if personal else None
    return DeviceRecord(device=name, tier=1, ratio=0.0, onnx_accuracy=accuracy, personalisation=changed)


def test_delivered_models_that_are_worse_than_the_trained_ones_are_told_of() -> None:
    history = [
        record(1, trained_accuracy={"a": 0.5, "b": 0.7, "c": 0.9}),
        record(2, trained_accuracy={"a": 0.9, "b": 0.8}),
    ]
    (text,) = warning_texts(
        history, [device("a", 0.8), device("b", 0.7), device("c", 0.9), device("d", None)]
    )
    assert text.startswith("delivery: 2 of 3 devices had a better model")
    assert "(mean accuracy 86.67%) than the delivered one (80.00%)" in text
    assert 'personalise-epochs = "auto"' in text
    (asked,) = warning_texts(history, [device("a", 0.8, personal=True), device("b", 0.7)])
    assert "personalise-epochs" not in asked


@pytest.mark.parametrize("shares", [(0.9, 0.78), (0.91, 0.76), (0.3, None)])
def test_a_slight_or_rare_loss_by_delivery_is_none(shares: tuple[float, float | None]) -> None:
    history = [record(1, trained_accuracy={"a": 0.9, "b": 0.8} if shares[1] is not None else {})]
    devices = [device(name, share) for name, share in zip("ab", shares, strict=True)]
    assert warning_texts(history, devices) == []
