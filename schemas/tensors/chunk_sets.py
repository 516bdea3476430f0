"""Sets of chunk numbers as runs: chunks come in order, so that a blob of any size has few of them."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True, slots=True)
class ChunkSet:
    """A set of chunk numbers. `runs` [first, stop) are in order, and neither overlap nor touch."""

    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "ChunkSet":
        """The set of these numbers, which ascend."""
        runs: list[tuple[int, int]] = []
        for number in numbers:
            if runs and runs[-1][1] == number:
                runs[-1] = (runs[-1][0], number + 1)
            else:
                runs.append((number, number + 1))
        return cls(tuple(runs))

    @classmethod
    def first(cls, count: int) -> "ChunkSet":
        """The numbers below `count`."""
        return cls(((0, count),) if count else ())

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(*run) for run in self.runs)

    def __len__(self) -> int:
        return sum(stop - first for first, stop in self.runs)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.runs, (number + 1,)) - 1
        return place >= 0 and number < self.runs[place][1]

    def touches(self, number: int) -> bool:
        """Whether the number, or the one before or behind it, is in the set."""
        return any(near in self for near in (number - 1, number, number + 1))

    def adding(self, first: int, count: int = 1) -> "ChunkSet":
        """The set with `count` numbers from `first` on."""
        stop = first + count
        before = bisect_right(self.runs, (first + 1,))
        if before and self.runs[before - 1][1] >= first:
            before -= 1
            first = self.runs[before][0]
        behind = bisect_right(self.runs, (stop + 1,), before)
        if behind > before:
            stop = max(stop, self.runs[behind - 1][1])
        return ChunkSet((*self.runs[:before], (first, stop), *self.runs[behind:]))

    def without(self, number: int) -> "ChunkSet":
        if number not in self:
            return self
        place = bisect_right(self.runs, (number + 1,)) - 1
        first, stop = self.runs[place]
        left = tuple(run for run in ((first, number), (number + 1, stop)) if run[0] < run[1])
        return ChunkSet((*self.runs[:place], *left, *self.runs[place + 1 :]))

    def below(self, count: int) -> "ChunkSet":
        return ChunkSet(tuple((first, min(stop, count)) for first, stop in self.runs if first < count))

    def gap(self, count: int) -> tuple[int, int] | None:
        """First number and length of the first run below `count` that is not in the set; None if all is."""
        first = self.runs[0][1] if self.runs and self.runs[0][0] == 0 else 0
        following = next((run[0] for run in self.runs[:2] if run[0] > first), count)
        return (first, min(following, count) - first) if first < count else None


NO_CHUNKS = ChunkSet()
