"""The model on its way down: encoded once, and cut for every sub-model like the model itself.

What nested sub-models share stays the same to the bit, so that it still travels in layers. Devices train from
what they have received and send the difference to that: the server's own model is never rounded.
"""

from __future__ import annotations

from edge_client.codecs.form import MODEL, SCALES
from edge_client.excerpt import Excerpt
from edge_client.slicing import cut_axes
from schemas.blobs import Array, Groups
from schemas.submodel import ChannelMap, SubModelSpec


class Downlink:
    """The parameters of one round as devices are to read them, encoded; as they are where they are not."""

    def __init__(self, encoded: Groups | None, channel_map: ChannelMap) -> None:
        self._encoded, self._channel_map = encoded, channel_map

    def groups(self, received: Groups, spec: SubModelSpec) -> Groups:
        """What a device of this sub-model receives, with the group `model` encoded."""
        if self._encoded is None:
            return received
        steps = self._encoded.get(SCALES, {})
        scales = {name: self._cut(steps[name], name, spec) for name in steps}
        model = Excerpt(self._encoded[MODEL], spec, self._channel_map)
        return {**received, MODEL: model, **({SCALES: scales} if scales else {})}

    def _cut(self, steps: Array, name: str, spec: SubModelSpec) -> Array:
        """The steps of the rows that the sub-model keeps of a parameter."""
        rows = cut_axes(self._channel_map.parameters[name], spec).get(0)
        return steps if rows is None else steps[rows]
