"""Builds the parts of the fleet service."""

from edge_server.fleet.alerts.alert_keeper import AlertKeeper
from edge_server.fleet.diagnostics.remote_part import RemotePart
from edge_server.fleet.part import Part, ServiceContext
from edge_server.fleet.presence import FleetMetrics, PresenceKeeper
from edge_server.fleet.queue.jobs_part import JobsPart


def make_parts(context: ServiceContext) -> tuple[Part, ...]:
    """The parts, in the order in which they hear of each event."""
    remote = RemotePart(context)
    return (
        PresenceKeeper(context.inventory),
        remote,
        JobsPart(context),
        AlertKeeper(context),
        FleetMetrics(context),
        *_page(context, remote),
    )


def _page(context: ServiceContext, remote: RemotePart) -> tuple[Part, ...]:
    """The page, unless the settings turn it off; it listens when this returns."""
    if not context.settings.page.enabled:
        return ()
    # What logging in needs is missed now, not at the first login.
    import argon2  # noqa: F401
    import authlib  # noqa: F401
    import joserfc  # noqa: F401

    from edge_server.fleet.page.page_part import PagePart

    page = PagePart(context, remote)
    page.begin()
    return (page,)
