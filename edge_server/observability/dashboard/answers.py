"""JSON answers and errors of the pages' routes."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import ConfigError


def json_text(value: Any) -> str:
    """Compact JSON without characters that a browser could read as markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_text(value), status, headers, "application/json")


def error_of(status: int, error: Exception | str, **headers: str) -> Response:
    """An error as JSON: its text, and of settings the fields of each problem.

    `retry_after` stands for the header `Retry-After`.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    problems = {"problems": error.fields()} if isinstance(error, ConfigError) else {}
    return json_answer({"error": str(error), **problems}, status, named)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_of(error.status_code, error.detail)
