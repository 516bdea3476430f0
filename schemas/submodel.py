"""Which channels a sub-model keeps (`SubModelSpec`), and where they are in arrays (`ChannelMap`)."""

from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import Field, model_validator

from schemas.base import Frozen

PositiveInt = Annotated[int, Field(ge=1)]
Kept = PositiveInt | Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]


class Segment(Frozen):
    """Consecutive positions along one axis of one parameter.

    They are the `channels` channels of `group`, each `repeat` positions wide (49 for flattened 7x7 maps).
    Without a group they are never pruned: an image's colours, or the classes.
    """

    channels: PositiveInt
    group: str | None = None
    repeat: PositiveInt = 1

    @property
    def positions(self) -> int:
        """Length of the segment along its axis."""
        return self.channels * self.repeat


class ParameterLayout(Frozen):
    """Shape of one full parameter, and the segments of each axis that has prunable channels."""

    shape: tuple[Annotated[int, Field(ge=0)], ...]
    axes: Mapping[int, tuple[Segment, ...]] = {}

    @model_validator(mode="after")
    def _segments_fill_their_axis(self) -> "ParameterLayout":
        for axis, segments in self.axes.items():
            if not 0 <= axis < len(self.shape):
                raise ValueError(f"axis {axis} of a parameter of shape {self.shape}")
            if sum(segment.positions for segment in segments) != self.shape[axis]:
                raise ValueError(f"segments of axis {axis} do not add up to {self.shape[axis]} positions")
        return self


class ChannelGroup(Frozen):
    """Channels that are pruned together in all layers that they connect.

    `layers` are the modules whose output has these channels. Channels are kept in blocks of `multiple` (the
    channels per group of a group normalisation; 1 elsewhere).
    """

    channels: PositiveInt
    layers: tuple[str, ...]
    multiple: PositiveInt = 1


class ChannelMap(Frozen):
    """Where every channel of a network is in its parameters: enough to slice arrays without model code."""

    groups: Mapping[str, ChannelGroup]
    parameters: Mapping[str, ParameterLayout]

    @model_validator(mode="after")
    def _segments_name_known_groups(self) -> "ChannelMap":
        for name, layout in self.parameters.items():
            for segments in layout.axes.values():
                for segment in segments:
                    if segment.group is None:
                        continue
                    group = self.groups.get(segment.group)
                    if group is None or group.channels != segment.channels:
                        raise ValueError(f"parameter {name!r} names an unknown group {segment.group!r}")
        return self

    def groups_of(self, names: Collection[str]) -> frozenset[str]:
        """The groups that have channels in these parameters."""
        axes = (segments for name in names for segments in self.parameters[name].axes.values())
        found = (segment.group for segments in axes for segment in segments)
        return frozenset(group for group in found if group is not None)

    def of_parameters(self, names: Collection[str]) -> "ChannelMap":
        """The map of these parameters alone, in this order."""
        kept = {name: self.parameters[name] for name in names}
        return ChannelMap.model_construct(groups=self.groups, parameters=kept)


class SubModelSpec(Frozen):
    """The channels that a sub-model keeps, by channel group.

    A number keeps that many leading channels; a list keeps these indices, in this order; a group that is not
    named is kept whole. `SubModelSpec()` is the full model.
    """

    kept: Mapping[str, Kept] = {}

    @model_validator(mode="after")
    def _no_channel_twice(self) -> "SubModelSpec":
        for group, kept in self.kept.items():
            if isinstance(kept, tuple) and len(set(kept)) != len(kept):
                raise ValueError(f"group {group!r} keeps a channel twice")
        return self

    def count(self, group: str, channels: int) -> int:
        """How many of the `channels` channels of `group` are kept."""
        kept = self.kept.get(group, channels)
        return kept if isinstance(kept, int) else len(kept)

    def share(self, channel_map: ChannelMap) -> float:
        """Kept channels over all channels, of all groups together; 1 for a network without groups."""
        groups = channel_map.groups.items()
        kept, whole = (
            sum(spec.count(name, group.channels) for name, group in groups) for spec in (self, SubModelSpec())
        )
        return kept / whole if whole else 1.0

    def of_groups(self, groups: Collection[str]) -> "SubModelSpec":
        """The channels of these groups alone: all that says how parameters with no others are cut."""
        return SubModelSpec(kept={name: kept for name, kept in self.kept.items() if name in groups})

    def indices(self, group: str, channels: int) -> tuple[int, ...]:
        """The kept channels of `group`, in the sub-model's order."""
        kept = self.kept.get(group, channels)
        return tuple(range(kept)) if isinstance(kept, int) else kept

    def fits(self, channel_map: ChannelMap) -> bool:
        """Whether every named group exists and has the kept channels."""
        return all(
            group in channel_map.groups
            # Compared without listing a prefix: a peer may have sent any number.
            and (kept if isinstance(kept, int) else max(kept) + 1) <= channel_map.groups[group].channels
            for group, kept in self.kept.items()
        )
