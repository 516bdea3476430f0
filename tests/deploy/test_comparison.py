"""The comparison page: its measured figures are those of the last benchmark."""

import re

from tests.deploy.pages import DOCS, ROOT

PAGE = " ".join((DOCS / "explanation" / "comparison.md").read_text(encoding="utf-8").split())
TABLE = (ROOT / "tests" / "benchmarks" / "last" / "table.md").read_text(encoding="utf-8")


def figure(name: str) -> str:
    """The value of a row of the benchmarks' table, without its unit."""
    (value,) = re.findall(rf"^\| (?:flower|bytes|overhead) \| {re.escape(name)} \| ([\d.,]+)", TABLE, re.M)
    return value


def rounded(name: str, digits: str) -> str:
    return f"{float(figure(name)):{digits}}"


def test_the_figures_are_those_of_the_last_benchmark() -> None:
    ratio = "a round without work, {} parameters, Flower over ours"
    small, large = rounded(ratio.format("1.66 M"), ".0f"), rounded(ratio.format("25 M"), ".1f")
    assert f"takes {small} times less time at 1.66 M parameters and {large} times less at 25 M" in PAGE
    # The broker copies: "a twentieth" is of the server's bytes, and a device receives half.
    assert rounded("bytes that the server sends, 25 M parameters, Flower over ours", ".0f") == "20"
    assert "From our server to the broker go a twentieth of the bytes" in PAGE
    name = "int8 of 7 levels + zstd up, fp16 down, the default: times fewer bytes than float32 down"
    assert rounded(name, ".0f") == "2"
    assert "a device receives half" in PAGE
    memory = figure("memory of a device, at most"), figure("memory of a client of Flower")
    assert f"A device takes {memory[0]} MB instead of {memory[1]}" in PAGE


def test_no_guide_links_to_where_a_peer_was() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *DOCS.rglob("*.md"))]
    assert not any("adap/flower" in page for page in pages)
