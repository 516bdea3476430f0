"""What the firewall remembers from update to update, and its checks that need it."""

from __future__ import annotations

from collections.abc import Iterable

from edge_server.firewall.canary import Accuracy, Canary
from edge_server.firewall.norms import MODEL, NormBound, Norms, norms_of
from edge_server.firewall.replays import Replays
from edge_server.firewall.sizes import Sizes, sizes_of
from edge_server.journal_reader import Examined
from edge_server.settings import FirewallSettings
from edge_server.strategy.updates import ClientUpdate
from schemas.blobs import Arrays, Groups
from schemas.messages import Update
from schemas.submodel import ChannelMap
from schemas.values import Reason


class Guard:
    """Replays, norms and the canary of one run. `accuracy` is for the canary; without it there is none."""

    def __init__(
        self, settings: FirewallSettings, channel_map: ChannelMap, accuracy: Accuracy | None = None
    ) -> None:
        self._channel_map = channel_map
        self._norms, self._replays = NormBound(settings), Replays()
        self._canary: Canary | None = None
        if accuracy is not None and settings.canary is not None:
            self._canary = Canary(accuracy, settings.canary)

    def measure(self, sizes: Sizes) -> dict[str, float]:
        """The norms that an update with numbers of these sizes goes by."""
        return norms_of(sizes, self._channel_map)

    def check(
        self,
        update: Update,
        groups: Groups,
        sizes: Sizes,
        norms: Norms,
        *,
        params: Arrays,
        round_number: int,
    ) -> None:
        """Raise `PeerError` unless the update is new, usual in size and harmless to the model `params`.

        `round_number` is that of the model, not of the task: in buffered mode they differ.
        """
        moved = any(size.largest > 0 for arrays in sizes.values() for size in arrays.values())
        self._replays.check(update.device, update.blob.digest, update.round, moved=moved)
        known = self._norms.is_known(MODEL)
        reference = None if known else self.measure(sizes_of({MODEL: params})).get(MODEL)
        self._norms.check(norms, reference)
        if self._canary is not None:
            alone = ClientUpdate(update.device, update.spec, groups, update.metrics.examples)
            self._canary.check(alone, params, self._channel_map, round_number)

    def judged(self, update: Update, norms: Norms, reason: Reason | None) -> None:
        """Remember what became of an update."""
        self.restore([Examined(update.round, update.device, update.blob.digest, reason, norms)])

    def restore(self, rows: Iterable[Examined]) -> None:
        """Remember what became of earlier updates, in order; the journal has them."""
        rows = list(rows)
        self._norms = self._norms.folded((row.device, row.reason, row.norms) for row in rows)
        self._replays = self._replays.folded(
            (row.device, row.digest, row.round) for row in rows if row.reason is None
        )
