"""The comparison of several runs: their settings, results and costs."""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate

from edge_server.config.units import (
    UNKNOWN,
    bytes_text,
    count_text,
    duration_text,
    number_text,
    percent_text,
    si_text,
)
from edge_server.observability.report import costs, document, origin
from edge_server.observability.report.charts import Chart, Series
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.figure_tables import curve
from edge_server.storage.records import RoundRecord

RUN_COLUMNS = ("run", "recipe", "model", "devices", "rounds", "outcome", "test accuracy", "best", "epsilon")
COST_COLUMNS = ("run", "down", "up", "updates", "full models up", "MACs", "time of the rounds", "refused")
REST = "the run folders"
NamedRuns = Sequence[tuple[str, RunContents]]
MAX_CURVES = 8  # Maximum curves of one chart, which is the number of markers and dashes


def runs_document(runs: Sequence[RunContents]) -> document.Document:
    named = list(zip(run_names(runs), runs, strict=True))
    sections = (
        document.Section("Runs", (_runs(named),)),
        document.Section("Curves", _curves(named)),
        document.Section("Tiers", (_tiers(named),)),
        document.Section("Costs", (_costs(named),)),
        document.Section("Differences", (_differences(named),)),
        document.Section("How to repeat it", _commands(named)),
    )
    finished = sum(run.summary.outcome == "finished" for run in runs)
    return document.Document(
        title=f"{len(runs)} runs compared",
        name=f"{len(runs)} runs compared",
        outcome=f"{finished} of {len(runs)} finished",
        detail="",
        good=finished == len(runs),
        facts=document.FactList(_best(named)),
        sections=sections,
    )


def run_names(runs: Sequence[RunContents]) -> list[str]:
    """The folders' names, with the parent folder where two names are equal."""
    short = [run.folder.resolve().name for run in runs]
    counts = Counter(short)
    return [
        name if counts[name] == 1 else "/".join(run.folder.resolve().parts[-2:])
        for name, run in zip(short, runs, strict=True)
    ]


def _best(named: NamedRuns) -> tuple[tuple[str, str], ...]:
    """The most accurate run, and the run that received the fewest bytes."""
    accuracies = ((run.summary.test_accuracy, name) for name, run in named)
    tested = [(accuracy, name) for accuracy, name in accuracies if accuracy is not None]
    sent = min((run.summary.uplink_bytes, name) for name, run in named)
    best = max(tested, default=None)
    most = (("most accurate", f"{best[1]}, {percent_text(best[0])}"),) if best else ()
    return (*most, ("fewest bytes received", f"{sent[1]}, {bytes_text(sent[0])}"))


def _runs(named: NamedRuns) -> document.Table:
    rows = [
        (
            document.words(name),
            document.words(run.summary.recipe or "none"),
            document.words(run.summary.model),
            *document.numbers(count_text(len(run.summary.devices)), count_text(run.summary.rounds)),
            document.words(run.summary.outcome),
            *document.numbers(
                percent_text(run.summary.test_accuracy),
                percent_text(run.summary.best_accuracy),
                UNKNOWN if run.summary.epsilon is None else f"{run.summary.epsilon:.3g}",
            ),
        )
        for name, run in named
    ]
    return document.table("Each run and the final accuracy of its global model", RUN_COLUMNS, rows, rest=REST)


def _curves(named: NamedRuns) -> tuple[document.Block, ...]:
    note = document.Paragraph(f"The charts show the first {MAX_CURVES} runs; the tables show all.")
    pairs = [(name, run.history) for name, run in named[:MAX_CURVES]]
    charts = (
        _chart("accuracy", "Test accuracy", "accuracy (%)", pairs, lambda r: r.test_accuracy, percent_text),
        _chart("loss", "Training loss", "loss", pairs, lambda r: r.train_loss, number_text),
        Chart(
            "sent",
            "Received from devices so far",
            "bytes",
            tuple(Series(name, _cumulative_uplink(history)) for name, history in pairs),
            bytes_text,
            from_zero=True,
        ),
    )
    return (document.Curves(charts), note) if len(named) > MAX_CURVES else (document.Curves(charts),)


def _chart(
    name: str,
    title: str,
    y_title: str,
    pairs: Sequence[tuple[str, Sequence[RoundRecord]]],
    value: Callable[[RoundRecord], float | None],
    text: Callable[[float], str],
) -> Chart:
    series = tuple(curve(label, history, value) for label, history in pairs)
    return Chart(name, title, y_title, series, text)


def _cumulative_uplink(history: Sequence[RoundRecord]) -> tuple[tuple[int, float | None], ...]:
    sums = accumulate(record.uplink_bytes for record in history)
    return tuple((record.round, float(total)) for record, total in zip(history, sums, strict=True))


def _tiers(named: NamedRuns) -> document.Table:
    last = [(name, run.history[-1].tier_accuracy if run.history else {}) for name, run in named]
    tiers = sorted({tier for _, accuracies in last for tier in accuracies})
    rows = [
        (document.words(name), *document.numbers(*(percent_text(accuracies.get(tier)) for tier in tiers)))
        for name, accuracies in last
    ]
    columns = ("run", *(f"tier {tier}" for tier in tiers))
    return document.table(
        "Test accuracy of each tier's sub-model after the last round", columns, rows, rest=REST
    )


def _costs(named: NamedRuns) -> document.Table:
    rows = []
    for name, run in named:
        cost = costs.measure(run.history, run.summary)
        cells = document.numbers(
            bytes_text(run.summary.downlink_bytes),
            bytes_text(run.summary.uplink_bytes),
            count_text(cost.updates),
            f"{cost.models:.3g}",
            si_text(costs.training_macs(run)),
            duration_text(sum(record.duration_s for record in run.history)),
            count_text(sum(device.refusals for device in run.summary.devices)),
        )
        rows.append((document.words(name), *cells))
    caption = (
        "The cost of each run: bytes, updates requested (AdaFL's relative units), received data in full "
        "models of four bytes per parameter, multiply-accumulates of training, time (virtual in simulations)"
    )
    return document.table(caption, COST_COLUMNS, rows, rest=REST)


def _differences(named: NamedRuns) -> document.Block:
    found = origin.differing([run.settings for _, run in named])
    if not found:
        return document.Paragraph("The federation files are identical.")
    rows = [
        (document.words(key), *(document.words(value or UNKNOWN) for value in values))
        for key, values in found.items()
    ]
    return document.table(
        "Settings that differ between runs", ("setting", *(name for name, _ in named)), rows, rest=REST
    )


def _commands(named: NamedRuns) -> tuple[document.Block, ...]:
    lines = [f"# {name}\n{run.made.command if run.made else 'not recorded'}" for name, run in named]
    files = shlex.join(str(run.folder) for _, run in named)
    return (
        document.Paragraph("The runs were started with these commands:"),
        document.Code("\n".join(lines)),
        document.Paragraph("This page was made by:"),
        document.Code(f"edge-server report {files}"),
    )
