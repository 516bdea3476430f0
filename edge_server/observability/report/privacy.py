"""The privacy of a run: differential privacy of its model, secure aggregation of updates."""

import math

from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Block, FactList, Paragraph, Section

NO_NOISE = (
    "No differential privacy: nothing limits what the model reveals about a single device's data. "
    'To limit it, set [privacy] mechanism = "gaussian" (deploy/docs/explanation/privacy.md).'
)
OPEN_UPDATES = (
    "No secure aggregation: the server could read each device's update. The training examples never left "
    "the devices."
)


def privacy_section(run: RunContents) -> Section:
    return Section("Privacy", (*_noise(run), *_masks(run)))


def _noise(run: RunContents) -> tuple[Block, ...]:
    if run.setting("privacy", "mechanism", "none") == "none" and run.summary.epsilon is None:
        return (Paragraph(NO_NOISE),)
    epsilon, delta = run.summary.epsilon, run.summary.delta
    spent = "not known" if epsilon is None or delta is None else f"{epsilon:.3g} at delta {delta:g}"
    clips = [record.clip for record in run.history if record.clip is not None]
    budget = run.setting("privacy", "budget")
    facts = (
        ("epsilon spent", spent),
        ("budget", "none" if budget is None else f"epsilon {budget:g}"),
        ("mechanism", str(run.setting("privacy", "mechanism", "not known"))),
        ("noise multiplier", f"{run.setting('privacy', 'noise-multiplier', 'not known')}"),
        ("clip (L2 norm)", _clip(run, clips)),
        (
            "amplification by sampling",
            "counted" if run.setting("privacy", "amplification") else "not counted",
        ),
        ("protected unit", "a device with all of its data"),
    )
    return (FactList(facts), Paragraph(_meaning(epsilon, delta)))


def _clip(run: RunContents, clips: list[float]) -> str:
    stated = run.setting("privacy", "clip", "not known")
    return f"{stated}, ended at {clips[-1]:.3g}" if stated == "adaptive" and clips else str(stated)


def _meaning(epsilon: float | None, delta: float | None) -> str:
    """The definition in words (Dwork and Roth 2014, definition 2.4); neighbours differ in a device."""
    if epsilon is None or delta is None:
        return "No round has spent any of the budget."
    factor = math.exp(min(epsilon, 700.0))
    return (
        "In other words: without any one of the devices, every possible result computed from the released "
        f"models would be at most {factor:.3g} times (e to the epsilon) less or more likely, except for a "
        f"probability of {delta:g}."
    )


def _masks(run: RunContents) -> tuple[Block, ...]:
    if not run.setting("privacy", "secure-aggregation", False):
        return (Paragraph(OPEN_UPDATES),)
    holders = run.setting("privacy", "min-holders", "several")
    text = (
        f"Secure aggregation: updates were masked, and the server could read only sums over at least "
        f"{holders} updates (deploy/docs/explanation/secure-aggregation.md)."
    )
    return (Paragraph(text),)
