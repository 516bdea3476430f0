"""The benchmark of the server's memory runs; its results are not tested."""

import sys

import pytest

from tests.benchmarks.server_memory import prepare, take


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_every_case_closes_a_round(tmp_path):
    prepare(tmp_path, 6, small=True)
    for name in ("mean", "attention-matching", "scaffold"):
        taken = take(name, tmp_path, 6)
        # mlp: 28 * 28 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10 numbers.
        assert (taken.clients, taken.model) == (6, 4 * 199_210)
