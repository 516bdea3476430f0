"""The report in the browser: no column of a table is out of sight."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from edge_server.config.units import percent_text
from edge_server.observability.report.charts import Chart, Series
from edge_server.observability.report.document import Curves, Document, FactList, Section, Sweep
from edge_server.observability.report.html_page import html_page
from edge_server.observability.report.parallel_axes import ParallelAxes
from edge_server.observability.report.report import write_report
from edge_server.storage.records import DeviceRecord, Rejected
from schemas.values import DeliveryVerdict
from tests.edge_server.observability.report.test_report import folder
from tests.edge_server.observability.terminal.shown import record, summary

WHY = "its accuracy on 57 held-out examples is lower than that of the earlier one by more than chance"
DEVICES = tuple(
    DeviceRecord(
        device=f"raspberry-pi-4-behind-the-kitchen-door-{number}",
        tier=number,
        ratio=0.3,
        labels={"site": "barn", "room": "kitchen"},
        parameters=131_830,
        macs=710_000,
        onnx_bytes=540_000,
        downlink_bytes=3_890_000,
        uplink_bytes=558_000,
        rounds=4,
        refusals=1,
        examples=286,
        torch_accuracy=0.9615,
        onnx_accuracy=0.9614,
        max_difference=1.2e-6,
        latency_ms=0.0181,
        verdict=DeliveryVerdict(served=False, earlier="a" * 64, accuracy=0.9, earlier_accuracy=1.0, why=WHY),
    )
    for number in range(1, 6)
)
HISTORY = tuple(
    record(
        number,
        train_loss=0.9,
        test_loss=0.3,
        test_metrics={"accuracy": 0.9},
        tier_metrics={tier: {"accuracy": 0.5} for tier in range(1, 6)},
        dropped=("jetson-porch", "mini-pc-office"),
        rejected=(Rejected(device="pi-zero-attic", reason="not-finite"),),
    )
    for number in range(1, 4)
)


@pytest.mark.parametrize("width", [1280, 390])
def test_every_column_of_the_report_is_in_sight(
    width: int, new_page: Callable[..., Any], tmp_path: Path
) -> None:
    path = write_report(folder(tmp_path, end=summary(devices=DEVICES), history=HISTORY))
    page = new_page(viewport={"width": width, "height": 900})
    page.goto(path.as_uri())
    hidden = page.evaluate(
        """() => [...document.querySelectorAll(".scroll, .card, pre, body")]
            .filter((box) => box.scrollWidth > box.clientWidth + 1)
            .map((box) => box.getAttribute("aria-label") ?? box.tagName)"""
    )
    assert hidden == []
    assert page.get_by_text(WHY).first.is_visible()
    page.context.close()


KEYS = ("row", "learning-rate", "batch-size", "model.name")
ROWS = tuple(
    product(("attending-fedbuff", "fedavg"), ("0.01", "0.05", "0.1"), ("8", "32"), ("mlp", "two-nn"))
)
COVERED = """() => {
    const boxes = [...document.querySelectorAll("h2, figcaption, .legend span, svg text")]
        .map((it) => [it.textContent, it.getBoundingClientRect()]);
    const outside = boxes.filter(([, box]) => box.left < 0 || box.right > innerWidth).map(([text]) => text);
    const pairs = boxes.flatMap(([text, box], place) => boxes.slice(place + 1)
        .filter(([, next]) => Math.min(box.right, next.right) - Math.max(box.left, next.left) > 1
            && Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top) > 4)
        .map(([other]) => `${text} on ${other}`));
    return [...outside, ...pairs];
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_name_in_a_sweeps_charts_is_cut_or_lies_on_another(
    width: int, new_page: Callable[..., Any], tmp_path: Path
) -> None:
    lines = tuple((row, number / len(ROWS)) for number, row in enumerate(ROWS))
    sweep = ParallelAxes("sweep", "Test accuracy by setting", KEYS, "accuracy (%)", lines, percent_text)
    series = tuple(Series(", ".join(row), ((1, 0.1), (2, end))) for row, end in lines)
    curves = Chart("curves", "Test accuracy", "accuracy (%)", series, percent_text)
    sections = (
        Section("Settings", (Sweep((sweep,)),)),
        Section("Curves", (Curves((curves,)),)),
        Section("Next", ()),
    )
    (tmp_path / "compare.html").write_text(
        html_page(Document("fedavg", "fedavg", "finished", "", True, FactList(()), sections))
    )
    page = new_page(viewport={"width": width, "height": 900})
    page.goto((tmp_path / "compare.html").as_uri())
    assert page.evaluate(COVERED) == []
    page.context.close()
