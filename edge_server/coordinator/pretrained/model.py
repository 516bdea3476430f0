"""The weights that a run starts from, in place of another run's model."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edge_client.data.classes import numbers
from edge_client.models import header, registry
from edge_server.coordinator.pretrained.files import WeightFile, refuse
from edge_server.coordinator.pretrained.matching import Match, Outputs, Rows, Shape, match_arrays
from edge_server.coordinator.pretrained.sources import SourceKind
from edge_server.storage.records import StartedFrom, WeightsTaken
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import AnyArray, Arrays, kind_of
from schemas.values import Feature, ModelSpec

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
        return header.header_of(spec)
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
