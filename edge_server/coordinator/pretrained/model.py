"""The weights that a run starts from, in place of another run's model."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edge_client.data.classes import numbers
from edge_client.models import build, registry
from edge_server.coordinator.pretrained.files import WeightFile, refuse
from edge_server.coordinator.pretrained.sources import SourceKind
from edge_server.storage.records import StartedFrom, WeightsTaken
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import AnyArray, Arrays, Kind, kind_of
from schemas.values import Feature, ModelSpec

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

    Names may differ by a prefix, as `module.` of a parallel wrapper, or `net.` of a network inside another
    one; those of a detector's trunk begin with `trunk`. The rows of the output layer go by the names of
    classes where both sides have them, and a layer of other classes is drawn anew.
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


MIN_SHARE = 0.75  # of the network's numbers outside its output layer; ResNet-18 has 0.52 of ResNet-34
SHOWN = 3  # The most differing parameters that an error names


@dataclass(frozen=True)
class PretrainedModel:
    """Weights of a `source`, as the user `stated` it, which are read once for each shape of an example.

    `inputs` are those that the weights were trained on, if that is known. It states neither columns nor a
    list of classes that the run would have to take.
    """

    source: SourceKind
    stated: str
    inputs: registry.InputRecord | None
    manifest: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    columns: tuple[Feature, ...] = ()
    _files: dict[Shape, WeightFile] = field(default_factory=dict, compare=False, repr=False)

    def check_columns(self, columns: Sequence[Feature]) -> None:
        """Nothing: weights have no columns."""

    def read(
        self, spec: ModelSpec, channel_map: ChannelMap, own: Arrays, names: Sequence[str]
    ) -> tuple[Arrays, StartedFrom]:
        """The network's parameters and their origin; what the source lacks is that of `own`.

        Raises `ConfigError` if less than `MIN_SHARE` of the network fits.
        """
        file = self._read(spec.input_shape)
        kinds = {name: kind_of(file.arrays, name) for name in file.arrays}
        shapes = {name: tuple(channel_map.parameters[name].shape) for name in own}
        outputs = Outputs(_output_layer(spec), tuple(names) or numbers(spec.num_classes), file.classes)
        trunk = registry.TRUNK if registry.is_detector(spec.name) else ""
        match = match_arrays(shapes, kinds, outputs, trunk=trunk)
        if not match.taken or match.share < MIN_SHARE:
            raise self._misfit(spec, match)
        params = {name: np.asarray(own[name]) for name in shapes}
        for name, there in match.taken.items():
            rows = match.rows if name in match.head else None
            array = file.arrays[there]
            array = array.sum(axis=1, keepdims=True) if name in match.summed else array
            params[name] = self._take(there, array, params[name], rows)
        rows = match.rows or ()
        new = tuple(name for name, row in zip(outputs.here, rows, strict=bool(rows)) if row is None)
        about = StartedFrom(
            stated=self.stated, state_sha256=file.sha256, new_classes=new, weights=_record(match, shapes)
        )
        return params, about

    def read_fixed(self, drawn: Arrays) -> Arrays:
        """What the network's factory has `drawn` besides its weights: it stays."""
        return drawn

    def _read(self, input_shape: Shape) -> WeightFile:
        if input_shape not in self._files:
            self._files[input_shape] = self.source.read(self.stated, input_shape)
        return self._files[input_shape]

    def _take(self, name: str, theirs: AnyArray, own: AnyArray, rows: Rows | None) -> AnyArray:
        """Their array, with our own rows for classes that they do not know."""
        if rows is not None:
            theirs = np.stack([own[n] if row is None else theirs[row] for n, row in enumerate(rows)])
        if not np.isfinite(theirs).all():
            raise refuse(f"{self.stated}: '{name}' has numbers that are not finite", "name other weights")
        return np.array(theirs, own.dtype)

    def _misfit(self, spec: ModelSpec, match: Match) -> ConfigError:
        odd = [name for name in match.drawn if name not in match.head] or [*match.drawn]
        named = [f"'{name}': {match.drawn[name]}" for name in odd[:SHOWN]]
        more = [f"{len(odd) - SHOWN} more"] if len(odd) > SHOWN else []
        return refuse(
            f"{self.stated} fits {match.share:.0%} of the network '{spec.name}' for {spec.input_shape}, and "
            f"{MIN_SHARE:.0%} are needed: {'; '.join([*named, *more])}",
            "name the network that these weights are of, or other weights",
        )


def _output_layer(spec: ModelSpec) -> str | None:
    try:
        return build.header_of(spec)
    except ConfigError:
        return None


def _record(match: Match, shapes: Mapping[str, Shape]) -> WeightsTaken:
    drawn_rows = sum(row is None for row in match.rows or ())
    drawn = drawn_rows * sum(math.prod(shapes[name][1:]) for name in match.head)
    return WeightsTaken(
        numbers=sum(math.prod(shapes[name]) for name in match.taken) - drawn,
        of=sum(map(math.prod, shapes.values())),
        taken=Counter(name.partition(".")[0] for name in match.taken),
        summed=tuple(sorted(match.summed)),
        drawn=match.drawn,
        unused=match.unused,
    )
