"""`/metrics` with the dashboard's access control."""

from __future__ import annotations

from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edge_server.observability.prometheus.collector import exposition, run_registry


def metrics_route(collector: Collector) -> Route:
    """A route that answers with the metrics of the collector and of this process."""
    registry = run_registry(collector)

    async def answer(request: Request) -> Response:
        kind, text = await run_in_threadpool(exposition, registry, request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": kind})

    return Route("/metrics", answer)
