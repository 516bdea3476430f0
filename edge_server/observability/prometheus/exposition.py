"""Metrics in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[str, bytes]:
    """Content type and body: text format 0.0.4, or the format that the header `Accept` asks for."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)
