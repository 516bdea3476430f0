"""The current state of a board; unknown values cause no error."""

from edge_client.agent.announcer import board_state
from schemas.values import BoardState
from tests.edge_client.system.hardware.trees import PI, tree


def test_the_state_is_read_from_the_boards_files(tmp_path):
    status = {"proc/self/status": "Name:\tpython\nVmSize:\t  100000 kB\nVmRSS:\t   50000 kB\n"}
    # The service has a limit of 400 MB and uses 150 MB, of which 50 MB are idle file pages; the load is 1.25
    # on four cores.
    assert board_state(cores=4, root=tree(tmp_path, PI, status)) == BoardState(
        celsius=61.225, battery=0.42, memory_bytes=51_200_000, memory_free_bytes=300_000_000, load=0.3125
    )


def test_a_board_without_any_of_these_files_has_an_empty_state(tmp_path):
    assert board_state(cores=0, root=tmp_path) == BoardState()


def test_impossible_values_are_omitted_and_the_rest_is_reported(tmp_path):
    wrong = {"proc/loadavg": "1e300 0 0 1/1 1\n", "proc/self/status": f"VmRSS: {10**15} kB\n"}
    assert board_state(cores=1, root=tree(tmp_path, PI, wrong)) == BoardState(
        celsius=61.225, battery=0.42, memory_free_bytes=300_000_000
    )


def test_the_free_space_is_that_of_the_given_folder(tmp_path):
    free = board_state(cores=1, root=tmp_path, folder=tmp_path).disk_free_bytes
    assert free is not None
    assert free > 0
    assert "disk_free_bytes" not in BoardState().model_dump()
