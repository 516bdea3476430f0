"""Costs, privacy and refusals in a report, its Markdown and JSON forms, and the comparison of runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from edge_client.cli.app import CommandLine
from edge_server.cli.main import EDGE_SERVER
from edge_server.observability.report.comparison import run_names, runs_document
from edge_server.observability.report.contents import RunContents, read_run_contents
from edge_server.observability.report.costs import training_macs
from edge_server.observability.report.document import Cell, Code, Paragraph, table, without_empty
from edge_server.observability.report.html_page import html_block
from edge_server.observability.report.markdown import markdown_block, plain, sparkline
from edge_server.observability.report.origin import differing, privacy_section
from edge_server.observability.report.report import report_value, run_document
from edge_server.storage.records import DeviceRecord, Rejected, RoundRecord, Summary
from schemas.selectors import parse_where
from tests.edge_server.observability.report.test_report import Page, folder
from tests.edge_server.observability.terminal.shown import MEASURED, record, scored, summary


def contents(end: Summary | None = None, *history: RoundRecord, **fields: Any) -> RunContents:
    return RunContents(Path("run"), end or summary(), history, "", fields.pop("settings", {}), **fields)


def section(run: RunContents, title: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report_value(run_document(run))["sections"][title]
    return found


def rows(run: RunContents, title: str, index: int = 0) -> list[dict[str, str]]:
    tables = [block["rows"] for block in section(run, title) if "table" in block]
    return list(tables[index])


def test_costs_are_counted_as_adafl_counts_them() -> None:
    # Two rounds with two of four devices: 4 updates of 8. Up: 2 x 12.3 MB = 24.6 MB, and a model of
    # 1,663,370 parameters takes 6.65 MB: 3.7 models.
    devices = tuple(DeviceRecord(device=f"d{index}", tier=1, ratio=0.0) for index in range(4))
    end = summary(devices=devices, downlink_bytes=13_300_000, uplink_bytes=24_600_000)
    by_name = {row["cost"]: row for row in rows(contents(end, record(1), record(2)), "Costs")}
    assert by_name["updates requested"] == {"cost": "updates requested", "total": "4", "per round": "2"}
    assert by_name["share of all devices in every round"]["total"] == "50.00%"
    assert by_name["received data in full models"]["total"] == "3.7"
    assert by_name["longest round"]["total"] == "4.2 s"


def test_multiply_accumulates_are_three_passes_over_the_trained_examples() -> None:
    # 100 examples (times epochs) at 5,301,000 per pass, and 10 of another device at 2,000,000.
    other = MEASURED.model_copy(update={"device": "board", "macs": 2_000_000})
    end = summary(devices=(MEASURED, other))
    assert training_macs(contents(end, trained={"phone": 100, "board": 10})) == 3 * (530_100_000 + 20_000_000)
    assert training_macs(contents(end, trained={"phone": 100, "stranger": 1})) is None
    assert training_macs(contents(end)) is None
    partly = {"training": {"train": "head"}}
    assert training_macs(contents(end, trained={"phone": 100}, settings=partly)) is None


def test_steps_of_smaller_tiers_count_with_their_own_multiply_accumulates() -> None:
    # Half of the phone's steps train the board's tier: 0.5 x 5,301,000 + 0.5 x 2,000,000 for each example.
    other = MEASURED.model_copy(update={"device": "board", "macs": 2_000_000})
    end, trained = summary(devices=(MEASURED, other)), {"phone": 100, "board": 10}
    dropout = {"name": "ordered-dropout", "own": 0.5}
    run = contents(end, trained=trained, settings={"strategy": {"objectives": ["batch-statistics", dropout]}})
    assert training_macs(run) == pytest.approx(3 * (365_050_000 + 20_000_000))


def test_privacy_shows_the_epsilon_spent_and_explains_it() -> None:
    settings = {"privacy": {"mechanism": "gaussian", "noise-multiplier": 1.0, "clip": "adaptive"}}
    end = summary(epsilon=2.0, delta=1e-5)
    run = contents(end, record(1, clip=0.25), settings=settings)
    facts, meaning, masks = privacy_section(run).blocks
    assert ("epsilon spent", "2 at delta 1e-05") in facts.rows
    assert ("clip (L2 norm)", "adaptive, ended at 0.25") in facts.rows
    assert isinstance(meaning, Paragraph)
    assert "at most 7.39 times" in meaning.text  # e squared
    assert isinstance(masks, Paragraph)
    assert masks.text.startswith("No secure aggregation")


def test_without_noise_the_report_states_that_there_is_no_privacy_bound() -> None:
    settings = {"privacy": {"mechanism": "none", "secure-aggregation": True, "min-holders": 3}}
    nothing, masks = privacy_section(contents(settings=settings)).blocks
    assert isinstance(nothing, Paragraph)
    assert nothing.text.startswith("No differential privacy")
    assert isinstance(masks, Paragraph)
    assert "sums over at least 3" in masks.text


def test_refusals_are_counted_by_reason_and_by_device() -> None:
    bad = MEASURED.model_copy(update={"refusals": 3, "refused": {"not-finite": 2, "replayed": 1}})
    details = ("'b' holds NaN", "'a' holds NaN", "")
    refused = [
        record(number, rejected=(Rejected(device="phone", reason="not-finite", detail=detail),))
        for number, detail in enumerate(details, 1)
    ]
    run = contents(summary(devices=(bad,)), *refused)
    first, second = rows(run, "Refused by the firewall")
    assert first["last detail"] == "'a' holds NaN"
    assert first["reason"] == "not-finite"
    assert (first["messages"], first["updates in rounds"], first["devices"]) == ("2", "3", "phone")
    assert [*second.values()] == ["replayed", "1", "0", "phone", ""]
    assert rows(run, "Refused by the firewall", 1)[0]["reasons"] == "not-finite 2, replayed 1"
    assert "No message of a device was refused" in section(contents(), "Refused by the firewall")[0]["text"]


def test_a_thousand_devices_are_summed_by_tier_and_most_rows_are_folded() -> None:
    many = [
        DeviceRecord(device=f"d{index}", tier=index % 2 + 1, ratio=0.0, rounds=1) for index in range(1000)
    ]
    many[999] = many[999].model_copy(update={"refusals": 1})
    run = contents(summary(devices=tuple(many)))
    assert [(row["tier"], row["devices"], row["updates"]) for row in rows(run, "Tiers")] == [
        ("1", "500", "500"),
        ("2", "500", "500"),
    ]
    page = Page(html_block(run_document(run).sections[3].blocks[0]))
    assert page.tags.count("details") == 1
    assert "960 more" in page.text
    # The page contains all devices; the refused device is first.
    assert page.tags.count("tr") == 1000 + 2
    assert rows(run, "Devices")[0]["device"] == "d999"
    text = markdown_block(run_document(run).sections[3].blocks[0])
    assert text.count("\n| ") == 40 + 2
    assert text.endswith("960 more rows are in summary.json.")


def test_empty_columns_are_left_out() -> None:
    made = table("c", ("a", "b", "d"), [[Cell("1"), Cell("-"), Cell("")], [Cell("2"), Cell("-"), Cell("x")]])
    assert without_empty(made).columns == ("a", "d")


@pytest.mark.parametrize(
    "text",
    [
        "<b>x</b>",
        "a|b",
        "*a* _b_ `c`",
        "[a](javascript:x)",
        "![x](http://x)",
        "# x",
        "&lt;",
        "~~x~~",
        "a\\|b",
        "a\nb",
    ],
)
def test_markdown_renders_any_text_literally(text: str) -> None:
    rendered = (
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(f"| x | y |\n| --- | --- |\n| {plain(text)} | second |\n")
    )
    page = Page(rendered)
    assert set(page.tags) == {"table", "thead", "tbody", "tr", "th", "td"}
    assert page.text.split("\n").count(text.replace("\n", " ")) == 1
    assert page.tags.count("td") == 2


def test_the_content_of_a_code_block_cannot_end_it() -> None:
    rendered = MarkdownIt("commonmark", {"html": True}).render(markdown_block(Code("```\n<b>x</b>\n````")))
    assert Page(rendered).tags == ["pre", "code"]


def test_a_sparkline_of_a_long_curve_ends_with_its_last_value() -> None:
    drawn = sparkline([0.0] * 99 + [1.0])
    assert len(drawn) <= 32
    assert drawn[-1] == "█"
    assert set(drawn[:-1]) == {"▁"}


def test_settings_that_differ_between_runs_are_named() -> None:
    first = {"training": {"local-epochs": 1, "batch-size": 32}, "tiers": {"ratios": [0.5, 0.0]}}
    second = {"training": {"local-epochs": 2, "batch-size": 32}, "model": {"name": "mlp"}}
    assert differing([first, second]) == {
        "training.local-epochs": ("1", "2"),
        "tiers.ratios": ("[0.5, 0.0]", ""),
        "model.name": ("", '"mlp"'),
    }


def test_runs_are_compared_under_their_folders_names(tmp_path: Path) -> None:
    for name, accuracy in (("one", 0.7), ("two", 0.9)):
        (tmp_path / name).mkdir()
        folder(tmp_path / name, end=summary(test_accuracy=accuracy), history=(scored(1), scored(2)))
    runs = [read_run_contents(tmp_path / name) for name in ("one", "two")]
    assert run_names(runs) == ["one", "two"]
    assert run_names([runs[0], runs[0]]) == [f"{tmp_path.name}/one"] * 2
    document = runs_document(runs)
    assert ("most accurate", "two, 90.00%") in document.facts.rows
    sections = report_value(document)["sections"]
    assert [row["best"] for row in sections["Runs"][0]["rows"]] == ["80.00%", "80.00%"]
    assert [block["chart"] for block in sections["Curves"]] == [
        "Test accuracy",
        "Training loss",
        "Received from devices so far",
    ]
    # 12.3 MB per round.
    assert sections["Curves"][2]["curves"]["one"] == [[1, 12_300_000], [2, 24_600_000]]


def run_program(program: CommandLine, *words: str) -> int:
    return program.run(list(words))


def test_the_command_writes_the_requested_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        folder(tmp_path / name, history=(scored(1),))
    monkeypatch.chdir(tmp_path)
    assert run_program(EDGE_SERVER, "report", "one") == 0
    assert capsys.readouterr().out.split() == ["one/report.html", "one/report.md"]
    assert run_program(EDGE_SERVER, "report", "one", "--format", "markdown", "--out", "notes/x.md") == 0
    assert (tmp_path / "notes" / "x.md").read_text() == (tmp_path / "one" / "report.md").read_text()
    assert run_program(EDGE_SERVER, "report", "one", "two", "--out", "both.html") == 0
    assert "2 runs compared" in (tmp_path / "both.html").read_text()
    capsys.readouterr()
    assert run_program(EDGE_SERVER, "report", "one", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["facts"]["recipe"] == "attending"
    assert run_program(EDGE_SERVER, "report", "one", "two") == 0
    assert capsys.readouterr().out.split() == ["compare.html", "compare.md"]
    assert run_program(EDGE_SERVER, "report", "one", "--out", "x.pdf") == 2
    assert "the name must end in .html, .md or .json" in capsys.readouterr().err


LABELLED = tuple(
    DeviceRecord(device=name, tier=tier, ratio=0.0, labels={"site": site}, examples=16)
    for name, tier, site in (("d1", 1, "barn"), ("d2", 2, "field"), ("d3", 1, "barn"))
)


def test_a_report_may_be_on_the_devices_that_match() -> None:
    run = contents(summary(devices=LABELLED), record(1), where=parse_where("site=barn"))
    assert [(row["device"], row["tested on"]) for row in rows(run, "Devices")] == [("d1", "16"), ("d3", "16")]
    assert [row["tier"] for row in rows(run, "Tiers")] == ["1"]
    assert report_value(run_document(run))["facts"]["tiers and devices"] == "2 of 3, where site=barn"
    nobody = contents(summary(devices=LABELLED), record(1), where=parse_where("site=mill"))
    assert section(nobody, "Devices") == [{"text": "No device matches site=mill."}]
    everybody = contents(summary(devices=LABELLED), record(1))
    assert "tiers and devices" not in report_value(run_document(everybody))["facts"]


def test_a_report_on_some_devices_never_replaces_the_one_on_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder(tmp_path, end=summary(devices=LABELLED))
    assert EDGE_SERVER.run(["report", str(run), "--where", "site=barn"]) == 2
    assert "name its file with --out" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
    out = tmp_path / "barn.html"
    assert EDGE_SERVER.run(["report", str(run), "--where", "site=attic", "--out", str(out)]) == 2
    assert "--where 'site=attic': no device of the run matches" in capsys.readouterr().err
    assert EDGE_SERVER.run(["report", str(run), "--where", "site=barn", "--out", str(out)]) == 0
    assert "2 of 3, where site=barn" in out.read_text()
