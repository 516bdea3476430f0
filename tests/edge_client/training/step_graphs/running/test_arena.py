"""The regions of onnxruntime's arena."""

import subprocess
import sys

import pytest

from edge_client.training.step_graphs.running.arena import BLOCK_BYTES, MAX_BYTES, MIN_BYTES, region_bytes

MB = 1_000_000


@pytest.mark.parametrize("working", [0, 1, 3 * MB, 100 * MB + 1, 1e15])
def test_a_region_holds_a_run_in_whole_blocks(working: float) -> None:
    region = region_bytes(working)
    assert region % BLOCK_BYTES == 0
    assert MIN_BYTES <= region <= MAX_BYTES
    assert region >= min(1.5 * working, MAX_BYTES)


def test_a_run_far_larger_than_memory_makes_an_arena_all_the_same() -> None:
    module = "edge_client.training.step_graphs.running.arena"
    code = f"from {module} import reserve, return_memory; reserve(1e15); return_memory()"
    subprocess.run([sys.executable, "-c", code], check=True)
