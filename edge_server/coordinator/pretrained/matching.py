"""Which arrays of a file fit a network, by name and shape (pure).

Names may differ by a prefix, as `module.` of a parallel wrapper, or `net.` of a network inside another one.
The output layer has a row per class: rows go by the names of classes where both sides have them, and a layer
of other classes is drawn anew.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from edge_client.data.classes import numbers
from schemas.tensors.arrays import Kind

Shape = tuple[int, ...]
Rows = tuple[int | None, ...]

COLOURS = 3
DEPTH = 3  # The most parts of a name that are tried as a prefix
MISSING = "not in the file"


@dataclass(frozen=True)
class Outputs:
    """The output `layer`, None if it is unknown, and the classes here and in the file.

    Classes in the file are empty if it does not list them; those without names are numbers.
    """

    layer: str | None
    here: tuple[str, ...]
    there: tuple[str, ...] = ()

    def place_rows(self) -> Rows | None:
        """The row in the file of each class here; None if rows are those of the same number."""
        one_is_numbered = _are_numbers(self.here) != _are_numbers(self.there)
        if not self.there or one_is_numbered or self.here == self.there:
            return None
        return tuple(self.there.index(name) if name in self.there else None for name in self.here)


def _are_numbers(names: tuple[str, ...]) -> bool:
    return names == numbers(len(names))


@dataclass(frozen=True)
class Match:
    """The arrays to take, as {name in the network: name in the file}, and why others are `drawn` anew.

    Arrays of the output layer are taken by `rows`, if there are any; those of three colours for a network of
    one are `summed` over them, which is what the layer computes of a grey picture. `unused` are those of the
    file that have no counterpart. `share` is what is taken of the network's numbers outside its output layer,
    of a detector's trunk.
    """

    taken: Mapping[str, str]
    drawn: Mapping[str, str]
    unused: tuple[str, ...]
    head: frozenset[str]
    rows: Rows | None
    summed: frozenset[str]
    share: float


def match_arrays(
    network: Mapping[str, Shape], given: Mapping[str, Kind], outputs: Outputs, *, trunk: str = ""
) -> Match:
    """Match the arrays of a network with those `given`; numbers without a point are never taken.

    Those of a detector's trunk have names that begin with `trunk`.
    """
    both = _Sides(network, given, find_names(network, given, trunk), outputs)
    head = frozenset(filter(both.is_output, network))
    rows = outputs.place_rows() if outputs.layer is not None else None
    misfits = {name: both.find_misfit(name, network[name]) for name in network.keys() - head}
    misfits |= both.find_head_misfits(head, rows)
    drawn = {name: why for name in network if (why := misfits.get(name))}
    taken = {name: both.names[name] for name in network if name not in drawn}
    pointed = {name for name, (dtype, _) in given.items() if dtype.kind == "f"}
    return Match(
        taken=taken,
        drawn=drawn,
        unused=tuple(sorted(pointed - set(both.names.values()))),
        head=head,
        rows=rows if head & taken.keys() else None,
        summed=frozenset(n for n in taken.keys() - head if _is_of_colours(network[n], both.shape_there(n))),
        share=_share(network, taken, [n for n in network.keys() - head or head if n.startswith(trunk)]),
    )


def find_names(network: Mapping[str, Shape], given: Mapping[str, Kind], trunk: str = "") -> dict[str, str]:
    """The name in the file of each array of the network that has a counterpart.

    Of all prefixes that most names of a side have, and `trunk`, those count with which most numbers fit.
    """
    shapes = {name: shape for name, (_, shape) in given.items()}
    best, most = dict[str, str](), -1
    for theirs in _prefixes(shapes):
        for ours in dict.fromkeys([*_prefixes(network), trunk]):
            names = {
                name: there
                for name in network
                if name.startswith(ours) and (there := theirs + name.removeprefix(ours)) in shapes
            }
            # The output layer's rows are other classes.
            fitting = sum(
                math.prod(network[name])
                for name, there in names.items()
                if shapes[there] == network[name] or (shapes[there][1:] == network[name][1:] != ())
            )
            if fitting > most:
                best, most = names, fitting
    return best


def _prefixes(names: Collection[str]) -> list[str]:
    """No prefix, and those with a point at their end that most names have, shortest first."""
    prefixes = [""]
    for depth in range(1, DEPTH + 1):
        parts = (name.split(".") for name in names)
        counts = Counter(".".join(part[:depth]) + "." for part in parts if len(part) > depth)
        prefixes += [prefix for prefix, count in counts.items() if 2 * count > len(names)]
    return prefixes


def _is_of_colours(here: Shape, there: Shape) -> bool:
    """Whether a first layer reads one colour here, [O, 1, ...], and three there."""
    return len(here) > 2 and here[1] == 1 and there == (here[0], COLOURS, *here[2:])


@dataclass(frozen=True)
class _Sides:
    """The network and the file, with the name in the file of each array that has a counterpart there."""

    network: Mapping[str, Shape]
    given: Mapping[str, Kind]
    names: Mapping[str, str]
    outputs: Outputs

    def shape_there(self, name: str) -> Shape:
        """The shape of an array's counterpart; that of a number without one."""
        return self.given[self.names[name]][1] if name in self.names else ()

    def is_output(self, name: str) -> bool:
        """Whether an array is one of the output layer."""
        if self.outputs.layer is not None:
            return name.rpartition(".")[0] == self.outputs.layer
        # A network that ends otherwise, as with a convolution: the numbers of classes alone differ.
        here, there = self.network[name], self.shape_there(name)
        differs = bool(here and there) and here[1:] == there[1:] and here != there
        return differs and here[0] == len(self.outputs.here)

    def find_misfit(self, name: str, wanted: Shape) -> str | None:
        """Why an array is not one of the `wanted` shape in the file; None if it is."""
        if name not in self.names:
            return MISSING
        dtype, shape = self.given[self.names[name]]
        if dtype.kind != "f":
            return f"{'an unknown type' if dtype.kind == 'V' else dtype} in the file"
        fits = shape == wanted or _is_of_colours(wanted, shape)
        return None if fits else f"{shape} in the file, {self.network[name]} here"

    def find_head_misfits(self, head: Collection[str], rows: Rows | None) -> dict[str, str]:
        """Why the output layer is drawn anew, which it is as a whole; {} if it is taken."""
        if rows is not None and not any(row is not None for row in rows):
            return dict.fromkeys(head, "other classes in the file")
        here, listed = len(self.outputs.here), len(self.outputs.there)
        reasons = dict[str, str]()
        for name in sorted(head):
            shape, there = self.network[name], self.shape_there(name)
            wanted = shape if rows is None else (listed, *shape[1:])
            if why := self.find_misfit(name, wanted):
                differs = bool(there) and there[1:] == shape[1:] and there[0] != here
                reasons[name] = f"{there[0]:,} classes in the file, {here:,} here" if differs else why
        return {name: reasons.get(name) or next(iter(reasons.values())) for name in head} if reasons else {}


def _share(network: Mapping[str, Shape], taken: Collection[str], among: Collection[str]) -> float:
    whole = sum(math.prod(network[name]) for name in among)
    return sum(math.prod(network[name]) for name in among if name in taken) / whole if whole else 1.0
