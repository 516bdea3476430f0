"""JSON lines: one request per line, as for `POST /predict`, or `{"file": "photo.png"}`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_client.inference.onnx_model import LoadedModel, said_in_one_line
from edge_client.inference.service import predictor, requests
from schemas.errors import ConfigError


def answer_line(line: str, number: int, model: LoadedModel, *, top: int) -> dict[str, Any]:
    """The answer to one line: `results` or `error`, with the line's `id` or else its number."""
    try:
        request = _request(line, model, top)
        with said_in_one_line(model.path):
            answers = model.predict(request.images)
    except ConfigError as error:
        return {"id": str(number), **predictor.refusal(line.encode(), error)}
    results = [model.result(row, top=request.top, frame=request.frame) for row in answers]
    document: dict[str, Any] = {"id": request.id or str(number), "results": results}
    return {**document, "notes": list(request.notes)} if request.notes else document


def _request(line: str, model: LoadedModel, top: int) -> requests.PredictionRequest:
    fields = requests.fields_of(line)
    if "file" not in fields:
        return requests.read_line(line, model, top=top)
    blank = requests.blank_of(fields, top)
    if fields.keys() - {"file", "top", "id"}:
        raise ConfigError("with 'file' only 'top' and 'id' are allowed")
    # Only this program's standard input may name files; requests over the network may not.
    path = Path(str(fields["file"]))
    try:
        return replace(requests.read_request(path.read_bytes(), model), top=blank.top, id=blank.id)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
