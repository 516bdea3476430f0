"""The Prometheus metrics, read from the calls and tables that make them, and from a page of a device."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from deploy.docs.generator.markdown import code, page, table
from edge_client.inference.service.metrics import RequestMetrics
from edge_server.observability import prometheus
from edge_server.observability.prometheus.collector import FIGURES
from edge_server.observability.prometheus.devices import PREFIX, READINGS

MAKERS = {
    "gauge": "gauge",
    "gauges": "gauge",
    "counter": "counter",
    "counters": "counter",
    "histogram": "histogram",
    "histograms": "histogram",
}
FILES = ("collector.py", "devices.py")
TABLES = (
    *((name, "", text) for name, text, _ in FIGURES),
    *((name, "`federation`, `device`", text) for name, text in READINGS.values()),
)


def metrics_page() -> str:
    """All metrics that `--metrics` serves."""
    intro = (
        "`edge-server run | simulate | demo | rollout --metrics [HOST:PORT]` serves these at `/metrics`; "
        "the page of a run serves them as well. Those with a label `device` are served with "
        "`--metrics-devices` alone. `edge-server serve` has those of the inventory and of alerts "
        "(`[metrics]` of `service.toml`), and `edge-client serve` those that begin with `edge_serve`. "
        "Figures of the process come with all of them (`process_...`, of the server also `python_info`). "
        "Where a server continues a run, `edge_server_rounds_closed_total` and "
        "`edge_server_updates_total` go on; received and sent bytes and refusals fall to what they were when "
        "the last round was closed, so that `increase` over the restart counts too much; all others begin at "
        "zero, as those of a device do. "
        "[Observability](../guides/fleet/observability.md) shows their use."
    )
    folder = Path(str(prometheus.__file__)).parent
    rows = [row for name in FILES for row in _metrics(folder / name)]
    rows += [(code(f"{PREFIX}{name}"), "gauge", labels, text) for name, labels, text in TABLES]
    rows += _serve_metrics()
    return page("Metrics", intro, table(("metric", "kind", "labels", "meaning"), dict.fromkeys(rows)))


def _metrics(path: Path) -> Iterator[tuple[str, str, str, str]]:
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MAKERS):
            continue
        kind, arguments = MAKERS[call.func.id], call.args
        texts = [part.value for part in arguments[:2] if isinstance(part, ast.Constant)]
        if len(texts) != 2:
            continue
        labels = arguments[2] if len(arguments) > 2 else None
        parts = labels.elts if isinstance(labels, ast.Tuple) else [labels]
        names = [
            part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
        ]
        name = f"{PREFIX}{texts[0]}" + ("_total" if kind == "counter" else "")
        yield code(name), kind, ", ".join(map(code, names)), str(texts[1])


def _serve_metrics() -> Iterator[tuple[str, str, str, str]]:
    metrics = RequestMetrics()
    metrics.request("http", "ok")
    metrics.reload("ok")
    text = metrics.text(dict.fromkeys(("version", "digest", "variant"), "x"), "cpu")
    for name, meaning, kind in re.findall(r"# HELP (edge_\S+) (.+)\n# TYPE \S+ (\S+)", text):
        labels = re.search(rf"^{name}{{(.+)}}", text, re.MULTILINE)
        names = re.findall(r'(\w+)="', labels[1]) if labels else ()
        yield code(name), kind, ", ".join(map(code, names)), meaning
