"""The report: one page from any run folder."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from edge_server.observability.report.charts import (
    Chart,
    Series,
    count_axis,
    line_chart,
    nice_step,
    separate_labels,
    value_axis,
)
from edge_server.observability.report.contents import read_run_contents
from edge_server.observability.report.document import Table
from edge_server.observability.report.figure_tables import accuracy_chart
from edge_server.observability.report.report import run_document, write_report
from edge_server.observability.report.sections import round_section
from edge_server.storage import records
from edge_server.storage.provenance import provenance
from schemas.errors import ConfigError
from schemas.values import DeliveryVerdict, Personalisation
from tests.edge_server.observability.terminal.shown import MEASURED, record, scored, summary

VOID = {"meta"}
MARKUP = '<script>alert("x")</script>&'


class Page(HTMLParser):
    """Check that every tag is closed in order, and store elements, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def folder(
    path: Path,
    *,
    end: records.Summary | None = None,
    history: tuple[records.RoundRecord, ...] = (),
    toml: str = '[federation]\nname = "home"\n',
) -> Path:
    (path / "summary.json").write_text((end or summary()).model_dump_json())
    (path / "history.jsonl").write_text("".join(line.model_dump_json() + "\n" for line in history))
    (path / "federation.toml").write_text(toml)
    return path


def page_of(path: Path, **contents: Any) -> Page:
    return Page(write_report(folder(path, **contents)).read_text())


def chart(*series: Series, **fields: Any) -> Chart:
    values: dict[str, Any] = {"from_zero": False} | fields
    return Chart("c", "Loss", "loss", tuple(series), lambda y: f"{y:.3g}", **values)


# The page


def test_the_report_describes_the_run(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        end=summary(devices=(MEASURED,), onnx={1: "onnx/tier-1.onnx"}),
        history=(scored(1), scored(2)),
    )
    for reported in ("home", "r1", "attending", "two-nn, 1,663,370 parameters", "finished", "1 min 15 s"):
        assert reported in page.text
    for reported in ("75.00%, best 80.00%", "onnx/tier-1.onnx", "tier 5", "498,365", 'name = "home"'):
        assert reported in page.text
    assert "edge-server run federation.toml" in page.text


def test_the_report_says_what_is_trained_and_what_is_frozen(tmp_path: Path) -> None:
    page = page_of(
        tmp_path, end=summary(trained=records.TrainedShare(numbers=(500, 1000), of=10_000, frozen=9000))
    )
    assert "500 / 1,000 of 10,000 numbers of the network (by tier)" in page.text
    # 9,000 numbers of four bytes.
    assert "90.0% of the network, 36 kB, which a device receives once" in page.text


def test_a_network_that_is_trained_whole_has_no_facts_of_its_parts(tmp_path: Path) -> None:
    assert "trained" not in summary().model_dump_json()
    assert (
        not {"trained", "frozen"} & dict(run_document(read_run_contents(folder(tmp_path))).facts.rows).keys()
    )


def test_each_chart_is_an_svg_with_a_title(tmp_path: Path) -> None:
    page = page_of(tmp_path, history=(scored(1), scored(2)))
    assert page.tags.count("svg") == page.tags.count("figure") == 4
    labels = {value for name, value in page.attributes if name == "aria-labelledby"}
    assert labels == {"accuracy-title", "loss-title", "bytes-title", "time-title"}
    assert labels <= {value for name, value in page.attributes if name == "id"}


def test_the_page_loads_no_other_file(tmp_path: Path) -> None:
    page = page_of(tmp_path, history=(scored(1),))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert "url(" not in page.text
    assert "@import" not in page.text
    assert "prefers-color-scheme: dark" in page.text


def test_tables_have_captions_and_scopes(tmp_path: Path) -> None:
    page = page_of(tmp_path, end=summary(devices=(MEASURED,)), history=(scored(1), scored(2)))
    # Figures, tiers, devices, what they serve, rounds, costs, settings, digests.
    assert page.tags.count("table") == page.tags.count("caption") == 8
    scopes = [value for name, value in page.attributes if name == "scope"]
    assert len(scopes) == page.tags.count("th")
    # Three rows of figures, one tier, one device twice, two rounds, eleven costs, one setting, the seed
    # and one digest.
    assert scopes.count("row") == 22


def test_a_device_that_kept_its_earlier_model_is_shown_with_both_accuracies(tmp_path: Path) -> None:
    verdict = DeliveryVerdict(
        served=False, why="accuracy: 10.0%", earlier="home-0", accuracy=0.1003, earlier_accuracy=0.9861
    )
    kept = MEASURED.model_copy(update={"device": "kept", "onnx_bytes": 9, "verdict": verdict})
    page_of(tmp_path, end=summary(devices=(MEASURED, kept)), history=(scored(1),))
    lines = (tmp_path / "report.md").read_text().splitlines()
    # The second table of devices is about what they serve.
    head, row = ([line for line in lines if line.startswith(f"| {word} ")][1] for word in ("device", "kept"))
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert (cells["new on trial"], cells["earlier on trial"]) == ("10.03%", "98.61%")
    assert (cells["serves"], cells["verdict"]) == ("**earlier**", "accuracy: 10.0%")


def test_markup_in_the_files_is_text_in_the_page(tmp_path: Path) -> None:
    device = MEASURED.model_copy(update={"device": MARKUP})
    refused = record(1, dropped=(MARKUP,), rejected=(records.Rejected(device=MARKUP, reason=MARKUP),))
    end = summary(
        federation=MARKUP,
        run=MARKUP,
        recipe=MARKUP,
        outcome=MARKUP,
        detail=MARKUP,
        model=MARKUP,
        devices=(device,),
        onnx={1: MARKUP},
    )
    page = page_of(tmp_path, end=end, history=(refused,), toml=f"# {MARKUP}\n")
    assert "script" not in page.tags
    # One in the title (its run is the folder), six in the heading, two for: device; one each for: ONNX file,
    # dropped device, refused device, its reason, reason and device in the firewall table, recipe, run, file.
    assert page.text.count(MARKUP) == 18
    text = (tmp_path / "report.md").read_text()
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    made = Page(rendered.replace("<hr>", ""))
    assert not {"script", "a", "img", "em"} & set(made.tags)
    # As in the page, without the title and the model card.
    assert made.text.count(MARKUP) == 17


def test_refused_and_dropped_devices_are_named_with_the_reason(tmp_path: Path) -> None:
    refused = (records.Rejected(device="watch", reason="not-finite"),)
    page = page_of(tmp_path, history=(record(1, dropped=("board",), rejected=refused),))
    assert "watch (not-finite)" in page.text
    assert "board" in page.text


def test_an_undone_round_is_shown_with_the_devices_left_out(tmp_path: Path) -> None:
    undone = (records.UndoneRecord(round=1, back_to=0, left_out=("pi-garage",)),)
    text = page_of(tmp_path, end=summary(undone=undone), history=(record(1),)).text
    assert "The model of round 1 was discarded" in text
    assert "after round 0, without pi-garage" in text


def test_runtimes_that_disagree_are_marked(tmp_path: Path) -> None:
    device = MEASURED.model_copy(update={"onnx_accuracy": 0.5})
    assert "50.00% differs" in page_of(tmp_path, end=summary(devices=(device,))).text


def test_models_trained_on_own_data_have_a_section(tmp_path: Path) -> None:
    figures = {"metric": "accuracy", "before": 0.75, "after": 0.5, "why": "50%, 75% before"}
    found = Personalisation(kept=False, epochs=2, **figures)
    device = MEASURED.model_copy(update={"personalisation": found})
    text = page_of(tmp_path, end=summary(devices=(device,))).text
    assert "Personal models" in text
    assert "50%, 75% before" in text
    assert "Personal models" not in page_of(tmp_path, end=summary(devices=(MEASURED,))).text


def test_a_run_interrupted_before_its_first_round_has_a_report(tmp_path: Path) -> None:
    end = summary(
        outcome="interrupted",
        detail="stopped by the user",
        recipe=None,
        rounds=0,
        test_metrics={},
        best_metric=None,
    )
    page = page_of(tmp_path, end=end)
    assert "stopped by the user" in page.text
    assert "No device took part." in page.text
    assert "No round was closed." in page.text
    assert page.text.count("no values") == 8  # in each chart and in its title for screen readers
    assert "None" not in page.text


def test_values_that_are_missing_are_dashes(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        end=summary(devices=(records.DeviceRecord(device="board", tier=5, ratio=0.0),)),
        history=(record(1), scored(2)),
    )
    assert "None" not in page.text
    assert "nan" not in page.text


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write_report(folder(tmp_path, history=(scored(1),)))
    before = path.read_bytes()
    assert write_report(tmp_path).read_bytes() == before
    assert path == tmp_path / "report.html"


@pytest.mark.parametrize("name", ["summary.json", "history.jsonl", "federation.toml"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (folder(tmp_path) / name).unlink()
    with pytest.raises(ConfigError, match=f"{name}: missing"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("summary.json", b"{", "not a summary"),
        ("summary.json", b"{}", "federation: Field required"),
        ("history.jsonl", b'\n{"round": 1', "line 2: not a round"),
        ("history.jsonl", b"\xff", "cannot be read"),
        ("federation.toml", b"[federation", "not TOML"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: bytes, reported: str) -> None:
    (folder(tmp_path) / name).write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name}.*{reported}"):
        write_report(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="elsewhere: expected a run folder"):
        write_report(tmp_path / "elsewhere")


# Charts


def test_series_differ_in_dashes_and_markers_not_only_in_colour() -> None:
    svg = line_chart(chart(*(Series(f"s{index}", ((1, index), (2, index))) for index in range(8))))
    lines = re.findall(r'<path class="line"[^>]*>', svg)
    assert len({re.sub(r' d="[^"]*"', "", line) for line in lines}) == 8
    assert len(set(re.findall(r'<path class="mark" d="([^"]*)"', svg))) == 8


def test_a_single_point_is_a_marker_with_its_value() -> None:
    svg = line_chart(chart(Series("test", ((3, 0.5),))))
    assert "<title>test, round 3: 0.5</title>" in svg
    assert "nan" not in svg


def test_a_missing_value_breaks_the_line_and_is_bridged() -> None:
    svg = line_chart(chart(Series("test", ((1, 1.0), (2, 2.0), (3, None), (4, 1.0), (5, 2.0)))))
    line, bridge = re.search(r'class="line" d="([^"]*)"', svg), re.search(r'class="bridge" d="([^"]*)"', svg)
    assert line is not None
    assert bridge is not None
    assert (line[1].count("M"), line[1].count("L")) == (2, 2)
    assert (bridge[1].count("M"), bridge[1].count("L")) == (1, 1)


def test_a_series_without_values_is_left_out() -> None:
    svg = line_chart(chart(Series("there", ((1, 1.0),)), Series("absent", ((1, None),))))
    assert "there" in svg
    assert "absent" not in svg


@pytest.mark.parametrize(
    "names", [["fedavg, learning-rate=0.01, batch-size=8"], [f"s{n}" for n in range(17)]]
)
def test_names_without_room_beside_the_curves_are_listed_below_with_their_last_values(
    names: list[str],
) -> None:
    drawn, _, below = line_chart(chart(*(Series(name, ((1, 0.5),)) for name in names))).partition("</svg>")
    assert 'class="label"' not in drawn
    assert re.findall("<span>(.*?)</span>", below) == [f"{name}: 0.5" for name in names]


def test_labels_are_escaped() -> None:
    assert MARKUP not in line_chart(chart(Series(MARKUP, ((1, 1.0),))))


def test_long_runs_have_few_markers() -> None:
    svg = line_chart(chart(Series("test", tuple((number, float(number)) for number in range(1, 1001)))))
    assert svg.count('class="mark"') <= 13  # twelve, and the marker at the label


@pytest.mark.parametrize(
    ("rough", "step"), [(0.7, 1.0), (1.0, 1.0), (1.1, 2.0), (4.9, 5.0), (5.1, 10.0), (0.03, 0.05)]
)
def test_steps_are_one_two_or_five(rough: float, step: float) -> None:
    assert nice_step(rough) == pytest.approx(step)


@pytest.mark.parametrize("values", [[0.5], [0.0], [-3.0], [], [0.1, 0.9], [1e9, 2e9], [0.97, 0.9701]])
def test_an_axis_contains_all_its_values(values: list[float]) -> None:
    axis = value_axis(values, start=100, end=0)
    assert axis.low < axis.high
    assert all(axis.low - 1e-9 <= value <= axis.high + 1e-9 for value in values)
    assert 2 <= len(axis.ticks) <= 8


def test_without_test_data_the_accuracy_on_devices_is_shown() -> None:
    alone = record(1, client_metrics={"accuracy": 0.75})
    assert [(curve.label, curve.known_points) for curve in accuracy_chart([alone]).series] == [
        ("on devices", [(1, 0.75)])
    ]
    assert accuracy_chart([alone]).title == "Devices' own data: accuracy"
    drawn = line_chart(accuracy_chart([alone]))
    assert "on devices ends at 75.00%<" in drawn
    assert ">75%</text>" in drawn
    (rounds,) = round_section([alone]).blocks
    assert isinstance(rounds, Table)
    assert rounds.columns[2] == "own data accuracy"
    assert rounds.rows[0][2].text == "75.00%"
    tested = alone.model_copy(update={"test_metrics": {"accuracy": 0.5}})
    assert [(curve.label, curve.known_points) for curve in accuracy_chart([tested]).series] == [
        ("global", [(1, 0.5)])
    ]
    assert accuracy_chart([tested]).title == "Test accuracy"


@pytest.mark.parametrize(
    ("command", "again"),
    [
        (
            "edge-server run my.toml --broker=mqtts://farm:8883 --ca 'the ca.crt' rounds=3",
            "edge-server run federation.toml --broker mqtts://farm:8883 --ca 'the ca.crt' --out again",
        ),
        ("edge-server demo", "edge-server run federation.toml --broker mqtt://HOST:1883 --out again"),
    ],
)
def test_the_command_that_repeats_a_run_names_its_broker(tmp_path: Path, command: str, again: str) -> None:
    run = folder(tmp_path, history=(record(1),))
    (run / "made.json").write_text(provenance(command).model_dump_json())
    assert again in Page(write_report(run).read_text()).text


def test_a_run_without_a_round_is_repeated_by_its_own_verb_and_has_nothing_to_replay(tmp_path: Path) -> None:
    run = folder(tmp_path, history=())
    (run / "journal.sqlite").touch()
    simulated = Page(write_report(run).read_text()).text
    assert "edge-server simulate federation.toml --out again" in simulated
    assert "Devices' own data" not in simulated
    (run / "lock").touch()
    served = Page(write_report(run).read_text()).text
    assert "edge-server run federation.toml --broker mqtt://HOST:1883 --out again" in served
    assert "replay" not in served


def test_naive_forecasts_stand_beside_the_error(tmp_path: Path) -> None:
    figures = {"mae": 1.2, "no-change": 1.5, "season-ago": 0.75}
    forecast = record(1).model_copy(update={"test_metrics": figures})
    run = folder(tmp_path, end=summary(test_accuracy=None, test_metrics=figures), history=(forecast,))
    text = Page(write_report(run).read_text()).text
    assert "no change 1.5, season ago 0.75" in text


def test_an_accuracy_axis_ends_at_one() -> None:
    assert value_axis([1.0], start=100, end=0, highest=1.0).high == pytest.approx(1.0)


def test_round_ticks_are_integers() -> None:
    assert count_axis([1, 2, 3], start=0, end=1).ticks == (1, 2, 3)
    assert count_axis([7], start=0, end=1).ticks == (7,)
    assert count_axis([7], start=0, end=1).place(7) == 0.5
    assert count_axis([1, 100], start=0, end=1).ticks == (20, 40, 60, 80, 100)


def test_labels_keep_their_order_and_their_distance() -> None:
    # 50 and 52 are too close: the second moves to a distance of 10; 99 stays.
    assert separate_labels([50, 52, 99], gap=10, low=0, high=100) == [50, 60, 99]
    # At the lower edge both labels move up.
    assert separate_labels([98, 99], gap=10, low=0, high=100) == [90, 100]
    assert separate_labels([], gap=10, low=0, high=100) == []
