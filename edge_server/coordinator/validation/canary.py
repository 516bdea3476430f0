"""The canary: whether an update by itself makes the model worse on the server's own test data."""

from __future__ import annotations

from collections.abc import Callable

from edge_server.strategy.aggregation.updates import ClientUpdate, to_global
from schemas.errors import PeerError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays
from schemas.values import Reason

SAMPLES = 500
"""So many test examples, or as many as there are."""

Accuracy = Callable[[Arrays, SubModelSpec], float | None]


class Canary:
    """Holds what the current model reaches in each sub-model's shape; a new model begins anew.

    The update is tried in the shape that it was trained in: added to the full model, an honest step of a
    small sub-model may look harmful, for the channels that it lacks have not moved with it.
    """

    def __init__(self, accuracy: Accuracy, allowed: float) -> None:
        self._accuracy, self._allowed = accuracy, allowed
        self._round = -1
        self._known: dict[str, float | None] = {}

    def check(self, update: ClientUpdate, params: Arrays, channel_map: ChannelMap, round_number: int) -> None:
        """Raise `PeerError` if the model of `round_number` and this update alone lose more than allowed."""
        if round_number != self._round:
            self._round, self._known = round_number, {}
        key = update.spec.model_dump_json()
        if key not in self._known:
            self._known[key] = self._accuracy(params, update.spec)
        moved = to_global(update, channel_map).delta
        before = self._known[key]
        after = self._accuracy({name: params[name] + moved[name] for name in params}, update.spec)
        if before is None or after is None or before - after <= self._allowed:
            return
        detail = f"alone it takes accuracy from {before:.3f} to {after:.3f}, by more than {self._allowed}"
        raise PeerError(detail, reason=Reason.HARMFUL)
