"""How a board is just now, and that a board which cannot tell stops nobody."""

from edge_client.system.hardware.state import board_state
from schemas.values import BoardState
from tests.edge_client.system.hardware.trees import PI, tree


def test_what_a_board_tells_is_read_from_its_files(tmp_path):
    status = {"proc/self/status": "Name:\tpython\nVmSize:\t  100000 kB\nVmRSS:\t   50000 kB\n"}
    # The service may have 400 MB, of which 150 MB are used, 50 MB of them files that nobody has touched;
    # one task and a quarter on four cores.
    assert board_state(cores=4, root=tree(tmp_path, PI, status)) == BoardState(
        celsius=61.225, battery=0.42, memory_bytes=51_200_000, memory_free_bytes=300_000_000, load=0.3125
    )


def test_a_board_without_any_of_these_files_tells_nothing(tmp_path):
    assert board_state(cores=0, root=tmp_path) == BoardState()


def test_what_cannot_be_true_is_left_out_and_the_rest_is_told(tmp_path):
    wrong = {"proc/loadavg": "1e300 0 0 1/1 1\n", "proc/self/status": f"VmRSS: {10**15} kB\n"}
    assert board_state(cores=1, root=tree(tmp_path, PI, wrong)) == BoardState(
        celsius=61.225, battery=0.42, memory_free_bytes=300_000_000
    )
