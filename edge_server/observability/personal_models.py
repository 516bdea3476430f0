"""What devices have gained by training a delivered model on their own data, in words and numbers."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from edge_client.data.tasks.words import METRICS
from edge_server.config.units import counted_text, figure_text
from edge_server.observability.figures import ACCURACY
from edge_server.storage.records import DeviceRecord
from schemas.values import Personalisation

Trained = tuple[DeviceRecord, Personalisation]


def personalised(devices: Sequence[DeviceRecord]) -> list[Trained]:
    """The devices that were asked to train their delivered model, each with its result."""
    return [(row, row.personalisation) for row in devices if row.personalisation is not None]


def before_and_after(found: Personalisation) -> tuple[str, str]:
    """The leading figure on held-out data of the received model, and of the trained one."""
    text = figure_text(METRICS.get(found.metric, ACCURACY))
    return text(found.before), text(found.after)


def keeps_text(found: Personalisation) -> str:
    return (found.model or "trained") if found.kept else "as received"


def personal_line(devices: Sequence[DeviceRecord]) -> str:
    """All devices in one sentence; empty if none was asked.

    `3 of 4 devices keep the model that they trained on their own data: accuracy 91.2%, 80.1% as received`:
    the mean over the devices that measured both, of what they keep. Of devices that chose among several
    models, `(2 personal, 1 alone)`.
    """
    asked = [found for _, found in personalised(devices)]
    if not asked:
        return ""
    kept = sum(found.kept for found in asked)
    chosen = Counter(found.model for found in asked if found.kept and found.model)
    which = f" ({', '.join(f'{count} {name}' for name, count in chosen.most_common())})" if chosen else ""
    of_all = f"{kept} of {counted_text(len(asked), 'device')}"
    return f"{of_all} keep the model that they trained on their own data{which}{_means(asked)}"


def _means(asked: Sequence[Personalisation]) -> str:
    pairs = [
        (found.before, found.after if found.kept else found.before)
        for found in asked
        if found.before is not None and found.after is not None
    ]
    name = next((found.metric for found in asked if found.metric in METRICS), "")
    if not pairs or not name:
        return ""
    before, now = (figure_text(METRICS[name])(fmean(values)) for values in zip(*pairs, strict=True))
    return f": {name} {now}, {before} as received"
