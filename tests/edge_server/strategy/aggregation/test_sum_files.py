"""Files of partial sums: no bit is lost, and what holds nothing takes no room."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.compression.zstd import unpack
from edge_server.strategy.aggregation import partial_sums
from edge_server.strategy.aggregation.accumulator import join_sums
from schemas.errors import PeerError
from schemas.submodel import ChannelMap, ParameterLayout
from schemas.tensors.arrays import Groups
from schemas.tensors.files import FlatGroups, write_tensors

SHAPES = {"w": (40, 300), "b": (40,), "steps": ()}
MAP = ChannelMap(groups={}, parameters={name: ParameterLayout(shape=shape) for name, shape in SHAPES.items()})


def sums(most_coarse: int, most_fine: int, seed: int = 0) -> Groups:
    draw = np.random.default_rng(seed)

    def whole(most: int) -> dict[str, np.ndarray]:
        return {
            name: draw.integers(-most, most, shape, endpoint=True).astype(np.float64)
            for name, shape in SHAPES.items()
        }

    return {partial_sums.COARSE: whole(most_coarse), partial_sums.FINE: whole(most_fine)}


def written(groups: Groups, folder: Path) -> Path:
    with (folder / "packed").open("wb") as file:
        partial_sums.write_sum(file, FlatGroups(partial_sums.planes_of(groups)))
    with (folder / "file").open("wb") as file:
        unpack(folder / "packed", file, limit=partial_sums.most_sum_bytes(MAP))
    return folder / "file"


@pytest.mark.parametrize(
    ("coarse", "fine"), [(0, 0), (0, 1), (1, 0), (3, 2**34), (2**30, 2**50), (2**52, 2**52), (0, 2**35)]
)
def test_a_sum_reads_back_as_the_same_numbers(tmp_path: Path, coarse: int, fine: int):
    groups = sums(coarse, fine)
    read = partial_sums.read_sum(written(groups, tmp_path), MAP)
    partial_sums.check_sum(read, MAP)
    for name in SHAPES:
        before, after = (
            [
                c * 2**35 + f
                for c, f in zip(
                    *(
                        one[g][name].ravel().astype(int).tolist()
                        for g in (partial_sums.COARSE, partial_sums.FINE)
                    ),
                    strict=True,
                )
            ]
            for one in (groups, read)
        )
        assert before == after
        assert (
            join_sums(*(read[g][name] for g in (partial_sums.COARSE, partial_sums.FINE)))
            == join_sums(*(groups[g][name] for g in (partial_sums.COARSE, partial_sums.FINE)))
        ).all()


def test_rows_are_read_without_the_rest(tmp_path: Path):
    groups = sums(100, 2**33)
    read = partial_sums.read_sum(written(groups, tmp_path), MAP)
    whole = read[partial_sums.FINE]["w"]
    assert (read[partial_sums.FINE].rows("w", 7, 9) == whole[7:9]).all()  # type: ignore[attr-defined]


def test_coordinates_that_no_member_holds_take_no_room(tmp_path: Path):
    groups = sums(1000, 2**34)
    full = written(groups, tmp_path).with_name("packed").stat().st_size
    groups[partial_sums.COARSE]["w"][:, 30:] = groups[partial_sums.FINE]["w"][:, 30:] = 0
    assert written(groups, tmp_path).with_name("packed").stat().st_size < full / 4


def test_six_bytes_of_a_number_hold_what_a_round_of_small_changes_adds_up_to(tmp_path: Path):
    draw = np.random.default_rng(0)
    total = sum(
        300 * draw.normal(0, 1e-2, SHAPES["w"]).astype(np.float32).astype(np.float64) for _ in range(20)
    )
    units = np.rint(total * 2.0**40)
    coarse = np.rint(units / 2**35)
    groups = {partial_sums.COARSE: {"w": coarse}, partial_sums.FINE: {"w": units - coarse * 2**35}}
    for group in groups.values():
        group |= {"b": np.zeros(40), "steps": np.zeros(())}
    packed = written(groups, tmp_path).with_name("packed").stat().st_size
    assert packed < 6.2 * total.size


def test_other_files_are_refused(tmp_path: Path):
    path = tmp_path / "other"
    for wrong in (
        {"model": {"w": np.zeros((40, 300), np.float32)}},
        {f"p{n:02d}": {"w": np.zeros((40, 300), np.uint8)} for n in range(12)},
        {
            f"p{n:02d}": {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
            for n in range(12)
        },
    ):
        with path.open("wb") as file:
            write_tensors(file, FlatGroups(wrong))
        with pytest.raises(PeerError):
            partial_sums.read_sum(path, MAP)
