"""What a device has measured of a model, by hand."""

from schemas.messages.rollout import ModelMeasurement


def measured(accuracy: float, *, examples: int = 100, latency_ms: float = 1.0) -> ModelMeasurement:
    figures = {"accuracy": accuracy}
    return ModelMeasurement(examples=examples, accuracy=accuracy, metrics=figures, latency_ms=latency_ms)
