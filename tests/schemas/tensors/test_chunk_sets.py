"""Sets of chunks do what sets of numbers do."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.tensors.chunks import NO_CHUNKS, ChunkSet

COUNT = 24
NUMBERS = st.sets(st.integers(0, COUNT - 1))


def is_plain(chunks: ChunkSet) -> bool:
    """Whether the runs are in order, and neither empty, nor touching each other."""
    ends = [end for run in chunks.runs for end in run]
    return ends == sorted(set(ends))


@given(NUMBERS, st.integers(0, COUNT - 1), st.integers(1, 9))
def test_they_hold_what_a_set_of_numbers_holds(numbers: set[int], number: int, count: int) -> None:
    chunks = ChunkSet.of(sorted(numbers))
    assert (set(chunks), len(chunks), bool(chunks)) == (numbers, len(numbers), bool(numbers))
    assert [n for n in range(COUNT) if n in chunks] == sorted(numbers)
    changed = {
        chunks.adding(number, count): numbers | set(range(number, number + count)),
        chunks.without(number): numbers - {number},
        chunks.below(number): {n for n in numbers if n < number},
    }
    for found, expected in changed.items():
        assert is_plain(found)
        assert found == ChunkSet.of(sorted(expected))
    assert chunks.touches(number) == bool(numbers & {number - 1, number, number + 1})


@given(NUMBERS, st.integers(0, COUNT))
def test_the_first_gap_is_the_first_run_that_is_missing(numbers: set[int], count: int) -> None:
    missing = [n for n in range(count) if n not in numbers]
    gap = ChunkSet.of(sorted(numbers)).gap(count)
    if not missing:
        assert gap is None
        return
    length = next((n for n in range(1, len(missing)) if missing[n] != missing[0] + n), len(missing))
    assert gap == (missing[0], length)


def test_all_chunks_are_one_run() -> None:
    assert ChunkSet.first(1 << 40).runs == ((0, 1 << 40),)
    assert ChunkSet.first(0) == NO_CHUNKS
    built = NO_CHUNKS
    for number in (3, 0, 1, 2):
        built = built.adding(number)
    assert built == ChunkSet.first(4)
