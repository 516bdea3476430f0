"""Examples of one origin, such as the windows of a recording, as units that stay together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Units:
    """The unit of each example [N], from 0, and each unit's label [U]."""

    of_examples: Numbers
    labels: Numbers

    def __len__(self) -> int:
        return len(self.labels)

    def examples(self, units: Numbers) -> Numbers:
        """The sorted indices of all examples of these units."""
        chosen = np.zeros(len(self), np.bool_)
        chosen[units] = True
        return np.flatnonzero(chosen[self.of_examples])

    def sides(self, sides: Numbers) -> Numbers:
        """The side of each unit, -1, 0 or 1, that most of its examples [N] are on."""
        return np.sign(np.bincount(self.of_examples, sides, minlength=len(self))).astype(np.int64)


def units_of(labels: Numbers, origins: Numbers) -> Units:
    """The units of examples [N] with these labels and origins, in the order of their first examples.

    An origin whose class has no other is not kept together: that class would be on one side alone. An origin
    has the label of its first example.
    """
    first = dict[int, int]()
    for place, origin in enumerate(origins.tolist()):
        first.setdefault(origin, place)
    heads = np.fromiter(first.values(), np.int64, len(first))
    alone = np.bincount(labels[heads]) == 1
    keys = np.fromiter((first[origin] for origin in origins.tolist()), np.int64, len(origins))
    keys = np.where(alone[labels[keys]], np.arange(len(keys)), keys)
    is_head = keys == np.arange(len(keys))
    return Units((np.cumsum(is_head) - 1)[keys], labels[is_head])
