"""The table `[metrics]` of service.toml."""

from schemas.base import Settings


class MetricsSettings(Settings):
    """Metrics of the fleet for Prometheus; none are served without an address."""

    listen: str | None = None
    """Where `/metrics` is served, such as `127.0.0.1:9465`; there is no authentication."""
    devices: bool = False
    """Also serve gauges of each device, with the device's name as a label."""
