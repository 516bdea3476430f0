"""Figures of merit of answers; each is None where the examples do not define it.

They are those of scikit-learn with the same names: `balanced_accuracy_score`, `f1_score(average="macro")`,
`roc_auc_score(average="macro", multi_class="ovr")`, `r2_score`. An average over classes is over those that
occur in the labels.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from edge_client.data.tasks.learning_task import Answers, Array

# What a forecast has to beat: "no change", and "the same as a season ago" (Hyndman and Athanasopoulos 2021,

NO_CHANGE, SEASON_AGO = 0, 1
LABEL = re.compile(r"(?P<column>.*)\+(?P<step>\d+)(?P<change> change)?")
"""The name of a table's label that is forecast: `co2+1`, `co2+1 change`."""
FALLEN = 0.8  # the error at a season over the largest one at a shorter distance
MAX_EXAMPLES = 2000  # examples from which the season is found


def naive_forecasts(inputs: Array, labels: Array, names: Sequence[str], columns: Sequence[str]) -> Array:
    """Both forecasts [N, 2, L] of labels [N, L] called `names`, from windows [N, columns, window].

    NaN where a label is no forecast of a column that is an input, or where no season is found.
    """
    made = np.full((len(inputs), 2, len(names)), np.nan)
    found = [LABEL.fullmatch(name) for name in names]
    if inputs.ndim != 3 or labels.shape != (len(inputs), len(names)):
        return made
    for place, match in enumerate(found):
        if match is None or match["column"] not in columns:
            continue
        series, step = inputs[:, columns.index(match["column"])].astype(np.float64), int(match["step"])
        offset = series[:, -1] if match["change"] else np.zeros(len(series))
        made[:, NO_CHANGE, place] = series[:, -1] - offset
        first = names.index(f"{match['column']}+1{match['change'] or ''}")
        season = _season(series, labels[:, first] + offset)
        if season and (back := -(-step // season) * season - step + 1) <= series.shape[1]:
            made[:, SEASON_AGO, place] = series[:, -back] - offset
    return made


def _season(series: Array, following: Array) -> int:
    """The season of windows [N, window] and the value [N] behind each, in rows; 0 without one."""
    chosen = slice(None, None, max(1, len(series) // MAX_EXAMPLES))
    # By distance from 1 on.
    errors = np.abs(series[chosen, ::-1] - following[chosen, None]).mean(0)
    fallen = np.flatnonzero(errors <= FALLEN * np.maximum.accumulate(errors))
    return int(fallen[errors[fallen].argmin()]) + 1 if len(fallen) else 0


def cross_entropy(outputs: Array, labels: Array) -> Array:
    """-log softmax(outputs)[label] [N], of outputs [N, classes] and labels int64 [N]."""
    shifted = outputs.astype(np.float64) - outputs.max(1, keepdims=True)
    return np.asarray(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels])


def binary_cross_entropy(outputs: Array, flags: Array) -> Array:
    """The mean over classes of -log p(flag) [N], of outputs [N, L] before the sigmoid and flags [N, L]."""
    x = outputs.astype(np.float64)
    return np.asarray((np.maximum(x, 0) - x * flags + np.log1p(np.exp(-np.abs(x)))).mean(1))


def squared_error(outputs: Array, targets: Array) -> Array:
    """The mean square of the differences of outputs and targets [N, L], per example [N]."""
    return np.asarray(np.square(outputs.astype(np.float64) - targets).mean(1))


def class_counts(answers: Answers) -> Array:
    """Examples of each class, and those of them that are recognised, [classes, 2]."""
    classes = answers.outputs.shape[1]
    is_class = (answers.labels >= 0) & (answers.labels < classes)
    labels, right = answers.labels[is_class], (answers.outputs.argmax(1) == answers.labels)[is_class]
    return np.stack([np.bincount(part, minlength=classes) for part in (labels, labels[right])], 1)


def recalls(answers: Answers) -> Array:
    """Share of each class's examples that are recognised [classes]; NaN for a class without examples."""
    examples, right = class_counts(answers).T
    return _ratio(right, examples)


def accuracy(answers: Answers) -> float | None:
    """Share of examples whose largest output is their class."""
    return float((answers.outputs.argmax(1) == answers.labels).mean()) if len(answers.labels) else None


def balanced_accuracy(answers: Answers) -> float | None:
    return mean_defined(recalls(answers))


def macro_f1(answers: Answers) -> float | None:
    """The mean F1 score over the classes that occur in labels or answers."""
    classes = answers.outputs.shape[1]
    return mean_defined(_f1(_one_hot(answers.outputs.argmax(1), classes), _one_hot(answers.labels, classes)))


def class_auroc(answers: Answers) -> float | None:
    """The mean over classes of the area under the curve of that class against the rest."""
    flags = _one_hot(answers.labels, answers.outputs.shape[1])
    return mean_defined(
        np.array([auroc(s, f) for s, f in zip(_softmax(answers.outputs).T, flags.T, strict=True)])
    )


def flag_counts(answers: Answers) -> Array:
    """Examples with each flag, and those of them that are recognised, [L, 2]."""
    true = answers.labels > 0.5
    return np.stack([true.sum(0), (true & (answers.outputs > 0)).sum(0)], 1)


def flag_f1s(answers: Answers) -> Array:
    """The F1 score of each class [L] for flags [N, L], where an output above 0 says yes."""
    return _f1(answers.outputs > 0, answers.labels > 0.5)


def flag_macro_f1(answers: Answers) -> float | None:
    return mean_defined(flag_f1s(answers))


def flag_accuracy(answers: Answers) -> float | None:
    """Share of flags that are right."""
    right = (answers.outputs > 0) == (answers.labels > 0.5)
    return float(right.mean()) if right.size else None


def flag_auroc(answers: Answers) -> float | None:
    """The mean over classes of the area under the curve."""
    pairs = zip(answers.outputs.T, answers.labels.T > 0.5, strict=True)
    return mean_defined(np.array([auroc(scores, flags) for scores, flags in pairs]))


def absolute_errors(answers: Answers) -> Array:
    """The mean absolute error of each output [L]."""
    return np.asarray(np.abs(answers.outputs.astype(np.float64) - answers.labels).mean(0))


def mean_absolute_error(answers: Answers) -> float | None:
    return float(absolute_errors(answers).mean()) if answers.labels.size else None


def naive_error(kind: int) -> Callable[[Answers], float | None]:
    """The mean absolute error of a kind of naive forecast, where there is one of every output."""

    def error(answers: Answers) -> float | None:
        if not len(answers.naive):
            return None
        found = float(np.abs(answers.naive[:, kind] - answers.labels).mean())
        return None if np.isnan(found) else found

    return error


def root_mean_square_error(answers: Answers) -> float | None:
    if not answers.labels.size:
        return None
    return float(np.sqrt(np.square(answers.outputs.astype(np.float64) - answers.labels).mean()))


def r2(answers: Answers) -> float | None:
    """The mean over outputs of 1 - the share of the labels' variance that is left; None for constants."""
    labels = answers.labels.astype(np.float64)
    if len(labels) < 2:
        return None
    left = np.square(answers.outputs - labels).sum(0)
    total = np.square(labels - labels.mean(0)).sum(0)
    return mean_defined(1 - _ratio(left, total))


def reconstruction_errors(answers: Answers) -> Array:
    """The mean square of what a network misses of each input, per example [N]."""
    return squared_error(answers.outputs, answers.targets)


def mean_reconstruction_error(answers: Answers) -> float | None:
    return float(reconstruction_errors(answers).mean()) if len(answers.targets) else None


def anomaly_auroc(answers: Answers) -> float | None:
    """The area under the curve of reconstruction errors, where labels above 0 are anomalies."""
    found = auroc(reconstruction_errors(answers), answers.labels.reshape(len(answers.labels)) > 0)
    return None if np.isnan(found) else found


def auroc(scores: Array, flags: Array) -> float:
    """The probability that a flagged example scores higher than another; equal scores count half.

    scores, flags [N]. NaN if all or none are flagged (Mann and Whitney 1947).
    """
    flagged = int(flags.sum())
    others = len(flags) - flagged
    if not flagged or not others:
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # The mean rank of equal scores, counted from 1.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[flags.astype(bool)].sum() - flagged * (flagged + 1) / 2) / (flagged * others))


def _f1(said: Array, true: Array) -> Array:
    """2 TP / (2 TP + FP + FN) of each column of flags [N, L]; NaN where a class does not occur."""
    return _ratio(2 * (said & true).sum(0), said.sum(0) + true.sum(0))


def _one_hot(labels: Array, classes: int) -> Array:
    return np.asarray(labels[:, None] == np.arange(classes))


def _softmax(outputs: Array) -> Array:
    shares = np.exp(outputs.astype(np.float64) - outputs.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


def _ratio(part: Array, whole: Array) -> Array:
    """part / whole, NaN where the whole is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def mean_defined(values: Array) -> float | None:
    """The mean of what is not NaN; None of nothing."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None
