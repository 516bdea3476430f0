"""The canary: whether an update alone makes the model worse on the server's test data."""

from collections.abc import Callable

from edge_server.strategy.aggregation.updates import ClientUpdate, to_global
from schemas.errors import PeerError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays
from schemas.values import Reason

SAMPLES = 500
"""Most test examples that the canary uses."""

Accuracy = Callable[[Arrays, SubModelSpec], float | None]


class Canary:
    """Compares accuracy with and without an update, in the update's own sub-model.

    In the full model an honest update of a small sub-model may look harmful, since the channels that it lacks
    have not moved. The accuracy without an update is computed once per sub-model and model version.
    """

    def __init__(self, accuracy: Accuracy, allowed: float) -> None:
        self._accuracy, self._allowed = accuracy, allowed
        self._round = -1
        self._known: dict[str, float | None] = {}

    def check(self, update: ClientUpdate, params: Arrays, channel_map: ChannelMap, round_number: int) -> None:
        """Raise `PeerError` if the update alone costs the model of the round more accuracy than allowed."""
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
