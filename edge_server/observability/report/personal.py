"""The section on models that devices have trained on their own data before they exported them."""

from edge_server.observability.personal_models import (
    before_and_after,
    keeps_text,
    personal_line,
    personalised,
    why_text,
)
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Cell, Section, numbers, table, words

COLUMNS = ("device", "figure", "as received", "trained", "epochs", "exported", "why")


def personal_sections(run: RunContents) -> tuple[Section, ...]:
    """The section with a row per device; none if no device was asked."""
    trained = personalised(run.summary.devices)
    rows = [
        (
            words(device.device),
            words(found.metric),
            *numbers(*before_and_after(found), str(found.epochs)),
            Cell(keeps_text(found), words=True, alert=found.before is None),
            words(why_text(found)),
        )
        for device, found in trained
    ]
    caption = f"{personal_line(run.summary.devices)}. Figures are of each device's own held-out data"
    return (Section("Personal models", (table(caption, COLUMNS, rows),)),) if rows else ()
