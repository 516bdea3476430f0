"""JSON lines: a request in each, as `POST /predict` takes them, and `{"file": "photo.png"}` besides."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from edge_client.inference.onnx_model import LoadedModel
from edge_client.inference.service.predictor import refusal
from edge_client.inference.service.requests import (
    PredictionRequest,
    blank_of,
    fields_of,
    read_asked,
    read_line,
)
from schemas.errors import ConfigError


def answer_line(line: str, number: int, model: LoadedModel, *, top: int) -> dict[str, Any]:
    """The answer to one line: its `results`, or its `error`, under its own `id` or else its number."""
    try:
        asked = _asked(line, model, top)
        probabilities = model.predict(asked.images)
    except ConfigError as error:
        return {"id": str(number), **refusal(line.encode(), error)}
    results = [{"top": [asdict(one) for one in model.rank(row, top=asked.top)]} for row in probabilities]
    document: dict[str, Any] = {"id": asked.id or str(number), "results": results}
    return {**document, "notes": list(asked.notes)} if asked.notes else document


def _asked(line: str, model: LoadedModel, top: int) -> PredictionRequest:
    fields = fields_of(line)
    if "file" not in fields:
        return read_line(line, model, top=top)
    blank = blank_of(fields, top)
    if fields.keys() - {"file", "top", "id"}:
        raise ConfigError("beside 'file' there may be 'top' and 'id'")
    # Only whoever writes to this program's own input may name files, never a stranger on the network.
    path = Path(str(fields["file"]))
    try:
        return replace(read_asked(path.read_bytes(), model), top=blank.top, id=blank.id)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
