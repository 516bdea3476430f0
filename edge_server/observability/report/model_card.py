"""The model card of a run's final model, as a section of its report."""

from __future__ import annotations

import re

from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Card, Paragraph, Section
from edge_server.releases.registry.card import model_card_body

NONE = "This run exported no model, so there is no card."


def card_section(run: RunContents) -> Section:
    """The registry's card without its title; links lead into the run folder."""
    if run.version is None:
        return Section("Model card", (Paragraph(NONE),))
    text = model_card_body(run.version, run.described, files="onnx/")
    return Section("Model card", (Card(re.sub(r"\A# .*\n+", "", text)),))
