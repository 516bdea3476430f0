"""The text that Prometheus reads."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[str, bytes]:
    """Content type and text: the plain format 0.0.4, or what the header `Accept` asks for."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)
