"""The two disjoint parts of a source: `#train` and `#test` after its name.

A reader states its purpose. A source with official parts returns that part. Any other source is whole for its
owner: a device trains on all of its data, a server tests on all of its own. If one source serves both, as in
a simulation, each reader names its part: `npz:shapes.npz#train` is four fifths of every class,
`npz:shapes.npz#test` the other fifth.
"""

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData

Split = Literal["train", "test"]

_PART = re.compile(r"#(train|test)$")


def named_part(source: str) -> tuple[str, Split | None]:
    """The source without its part, and the part."""
    match = _PART.search(source)
    if match is None:
        return source, None
    return source[: match.start()], "train" if match[1] == "train" else "test"


def split_off(data: "LabelledData", split: Split) -> "LabelledData":
    """The train (80%) or test (20%) part of data without an official split, always the same.

    Every fifth example in the order of its stratum is for testing, so both parts contain each class. Origins
    stay whole.
    """
    import numpy as np

    from edge_client.data.partition import holdout

    if data.origins is not None:
        train, test = holdout(data, fraction=0.2, seed=0)
        return test if split == "test" else train
    order = np.random.default_rng(0).permutation(len(data))
    order = order[np.argsort(data.strata[order], kind="stable")]
    for_test = np.arange(len(order)) % 5 == 4
    return data.subset(np.sort(order[for_test if split == "test" else ~for_test]))


def last_fifth(data: "LabelledData", split: Split) -> "LabelledData":
    """The train (first 80%) or test (last 20%) part in the source's order, as a series needs."""
    import numpy as np

    cut = len(data) - len(data) // 5
    return data.subset(np.arange(cut, len(data)) if split == "test" else np.arange(cut))
