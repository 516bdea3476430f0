"""What `infer` reads, and what it says of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edge_client.inference.queries import read_input
from schemas.values import Preprocessing


def test_a_half_written_line_is_left_out_and_the_user_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("x,y\n1,2\n3,4\n5,")
    model: Any = SimpleNamespace(input_shape=(2,), preprocessing=Preprocessing())
    model.fit = lambda data: data
    found = read_input(Path(f"csv:{path}"), model)
    assert found.images.tolist() == [[1, 2], [3, 4]]
    assert found.notes == (
        f"csv:{path}: what is half written is left out, such as a last line without a line end",
    )
