"""What is wrong with a training although its rounds close: warnings from figures, each of them once. Pure.

A judge is one function and one entry in `JUDGES`. It sees the round's record and the rounds before it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from edge_client.training.results import MAX_DEAD
from edge_server.config.units import loss_text, names_text
from edge_server.storage.records import RoundRecord, RoundWarning

IN_A_ROW = 3
"""Rounds in a row with one answer that make a warning; one less at the end of the run. The first rounds of a
good training may have one, too."""
LOOK_BACK = 100
RISE = 1.5
SLIGHT = 0.2
"""A smaller rise of the loss is none: good trainings on a few hundred pictures rise by 0.11 to 0.13."""
NEAR = 1e-6
MAX_NAMES = 3
_COLLAPSED = (
    "lower [training] learning-rate, take a network with normalisation (cnn-group) if yours has none, or "
    "train for more rounds if the loss still falls"
)
_DIVERGING = "lower [training] learning-rate or local-epochs"


def with_warnings(record: RoundRecord, earlier: Sequence[RoundRecord], *, last: int) -> RoundRecord:
    """The record with its warnings; the `earlier` rounds have theirs, and `last` is the run's last round."""
    given = {
        (warning.kind, name) for before in earlier for warning in before.warnings for name in warning.about
    }
    warnings = []
    for kind, judge in JUDGES.items():
        found = judge(record, earlier, record.round >= last)
        new = {name: text for name, text in found if (kind, name) not in given}
        for text in dict.fromkeys(new.values()):
            about = tuple(name for name, own in new.items() if own == text)
            warnings.append(
                RoundWarning(kind=kind, about=about, text=f"{names_text(about, most=MAX_NAMES)}: {text}")
            )
    return record.model_copy(update={"warnings": tuple(warnings)})


def gives_one_answer(found: Mapping[str, float]) -> bool:
    """Whether a classifier's figures are those of one answer for all examples, of at least two classes.

    An answer that is right for a share a of the examples recognises one of k classes: the balanced accuracy
    is 1 / k, and the F1 score 2a / (1 + a) for that class and 0 for the others.
    """
    names = ("accuracy", "balanced-accuracy", "macro-f1")
    share, balanced, f1 = (found.get(name, 0.0) for name in names)
    if not NEAR < balanced < 0.6:
        return False
    classes = round(1 / balanced)
    alone = math.isclose(balanced * classes, 1, rel_tol=NEAR)
    return alone and math.isclose(f1 * classes * (1 + share), 2 * share, rel_tol=NEAR)


def _one_answer(record: RoundRecord, earlier: Sequence[RoundRecord], over: bool) -> Iterator[tuple[str, str]]:
    """Tiers and devices whose model gives one answer for all held-out examples, round after round."""
    due = IN_A_ROW - over
    counts = Counter(name for name, one in _answers(record).items() if one)
    open_ = set(counts)
    for before in reversed(earlier[-LOOK_BACK:]):
        for name, one in _answers(before).items() if open_ else ():
            if name in open_:
                counts[name] += one
                if not one or counts[name] >= due:
                    open_.discard(name)
    for name in (name for name, count in counts.items() if count >= due):
        yield name, f"one answer for all held-out examples, {due} rounds in a row: {_COLLAPSED}"


def _answers(record: RoundRecord) -> dict[str, bool]:
    """Whether each tested tier, and each device that has trained, gives one answer for all its examples."""
    tiers = {f"tier {tier}": found for tier, found in sorted(record.tier_metrics.items())}
    whole = {"the model": record.test_metrics} if record.test_metrics and not tiers else {}
    devices = {name: name in record.one_answer for name in record.completed}
    return {**{name: gives_one_answer(found) for name, found in {**whole, **tiers}.items()}, **devices}


def _loss_rise(record: RoundRecord, earlier: Sequence[RoundRecord], over: bool) -> Iterator[tuple[str, str]]:
    """A round whose training loss is half as large again as that of the round before.

    Other devices have other data: at least half of them must be the same.
    """
    before = earlier[-1] if earlier else None
    if before is None or before.train_loss is None or record.train_loss is None:
        return
    same = set(before.completed) & set(record.completed)
    rise = record.train_loss - before.train_loss
    if 2 * len(same) < len(record.completed) or rise <= SLIGHT:
        return
    if record.train_loss > RISE * before.train_loss:
        figures = f"from {loss_text(before.train_loss)} to {loss_text(record.train_loss)}"
        yield "training loss", f"it has risen {figures}: {_DIVERGING}"


def _dead_channels(
    record: RoundRecord, earlier: Sequence[RoundRecord], over: bool
) -> Iterator[tuple[str, str]]:
    """Devices in whose model most channels of a layer are dead."""
    for name in record.dead_channels:
        yield name, f"at least {MAX_DEAD:.0%} of the channels of a layer answer no example: {_COLLAPSED}"


def _harmful_sums(
    record: RoundRecord, earlier: Sequence[RoundRecord], over: bool
) -> Iterator[tuple[str, str]]:
    """Devices whose sums make the head worse for all others."""
    yield from record.suspects.items()


Judge = Callable[[RoundRecord, Sequence[RoundRecord], bool], Iterator[tuple[str, str]]]
"""What is wrong, by tier, device or figure: of a round, the rounds before it, and whether it is the last."""
JUDGES: Mapping[str, Judge] = {
    "one-answer": _one_answer,
    "loss-rise": _loss_rise,
    "dead-channels": _dead_channels,
    "harmful-sums": _harmful_sums,
}
