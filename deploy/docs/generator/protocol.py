"""The protocol: every message with its fields."""

from deploy.docs.generator.markdown import code, page, table
from deploy.docs.generator.settings import properties_of, type_text
from edge_server.config.concepts import summary_of
from schemas.errors import Reason
from schemas.messages import MESSAGES


def protocol_page() -> str:
    """Every message, and the reasons of refusals."""
    intro = (
        "Messages are JSON objects with a `kind`; tensors travel as binary chunks. "
        "`edge-server schemas --out FOLDER` writes JSON Schemas of all of them. "
        "[schemas](../../../schemas/README.md) describes the exchange and the frame of a chunk."
    )
    sections = [
        f"## {kind}\n\n{summary_of(model)}\n\n"
        + table(
            ("field", "value"),
            [(code(name), type_text(field)) for name, field in properties_of(model).items()],
        )
        for kind, model in sorted(MESSAGES.items())
    ]
    reasons = "## Reasons of refusals\n\n" + ", ".join(code(str(reason)) for reason in Reason)
    return page("Protocol", intro, *sections, reasons)
