"""The table of networks is that of the pinned releases, and a few small networks still give its figures."""

import re
from pathlib import Path

import pytest

from tests.networks.__main__ import TABLE, read_results
from tests.networks.measure import measure
from tests.networks.names import CLASSES, NAMES
from tests.networks.page import page_of

ROOT = Path(__file__).parents[2]
MAX_DIFFERENCE = 1e-4
QUICK = ("torchvision:shufflenet_v2_x0_5", "timm:mobilenetv3_small_050", "timm:ghostnet_050")


def test_the_page_has_every_network_of_the_pinned_releases() -> None:
    rows = read_results()
    assert list(rows) == list(NAMES)
    pins = dict(
        re.findall(r"^(timm|torchvision)==(\S+)$", (ROOT / "deploy" / "constraints.txt").read_text(), re.M)
    )
    assert {row.release for row in rows.values()} == {f"{name} {pin}" for name, pin in pins.items()}
    assert TABLE.read_text() == page_of([*rows.values()])


def test_whole_and_cut_files_compute_what_torch_does() -> None:
    rows = read_results().values()
    assert all(max(row.differences) <= MAX_DIFFERENCE for row in rows if row.differences)
    assert not [row.name for row in rows if row.problem]


@pytest.mark.parametrize("name", QUICK)
def test_a_network_is_traced_and_cut_as_the_table_says(name: str) -> None:
    here, kept = measure(name, 32, CLASSES, export=False), read_results()[name]
    assert (here.parameters, here.groups, here.left, here.stops) == (
        kept.parameters,
        kept.groups,
        kept.left,
        kept.stops,
    )
