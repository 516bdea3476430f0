"""What the firewall remembers from update to update, and its checks that need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edge_server.config.sections import FirewallSettings
from edge_server.coordinator.validation.canary import Accuracy, Canary
from edge_server.coordinator.validation.consistency import check_variances
from edge_server.coordinator.validation.magnitudes import Magnitudes, magnitudes_of
from edge_server.coordinator.validation.norms import MODEL, STATISTICS, NormBound, Norms, norms_of
from edge_server.coordinator.validation.replays import Replays
from edge_server.storage.journal_reader import Examined
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.groups.rule import GroupRule
from schemas.messages import Update
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Arrays, Groups
from schemas.values import Reason

STATISTICS_SPREAD = 3.0
"""What normalisations measure on unlike data spreads so many times wider than trained weights."""


class UpdateHistory:
    """Replays, norms and the canary of one run. `accuracy` is for the canary; without it there is none.

    `rules` are those of the groups that devices may send beside the model.
    """

    def __init__(
        self,
        settings: FirewallSettings,
        channel_map: ChannelMap,
        accuracy: Accuracy | None = None,
        rules: Sequence[GroupRule] = (),
    ) -> None:
        self._channel_map = channel_map
        self._beside = frozenset((rule.name, array) for rule in rules for array in rule.bounded)
        self._spreads = {STATISTICS: STATISTICS_SPREAD, **{rule.name: rule.spread for rule in rules}}
        self._norms, self._replays = NormBound(settings), Replays()
        self._canary: Canary | None = None
        if accuracy is not None and settings.canary is not None:
            self._canary = Canary(accuracy, settings.canary)

    def measure(self, sizes: Magnitudes) -> dict[str, float]:
        """The norms that an update with numbers of these sizes goes by."""
        return norms_of(sizes, self._channel_map, self._beside)

    def outliers(self, updates: Mapping[str, Norms]) -> dict[str, str]:
        """Which of a round's updates are unlike the others, by device, and why in words."""
        return self._norms.outliers(updates, self._spreads)

    def check(
        self,
        update: Update,
        groups: Groups,
        sizes: Magnitudes,
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
        reference = None if known else self.measure(magnitudes_of({MODEL: params})).get(MODEL)
        self._norms.check(norms, reference)
        late = update.round <= round_number
        check_variances(update, groups, params, self._channel_map, late=late)
        if self._canary is not None:
            alone = ClientUpdate(update.device, update.spec, groups, update.metrics.examples)
            self._canary.check(alone, params, self._channel_map, round_number)

    def judged(self, update: Update, norms: Norms, reason: Reason | None) -> None:
        """Remember what became of an update."""
        self.restore([Examined(update.round, update.device, update.blob.digest, reason, norms)])

    def began_anew(self, rows: Iterable[Examined]) -> None:
        """Remember these and nothing else: some of them were refused after they had been accepted."""
        self._norms, self._replays = NormBound(self._norms.settings), Replays()
        self.restore(rows)

    def restore(self, rows: Iterable[Examined]) -> None:
        """Remember what became of earlier updates, in order; the journal has them."""
        rows = list(rows)
        self._norms = self._norms.folded((row.device, row.reason, row.norms) for row in rows)
        self._replays = self._replays.folded(
            (row.device, row.digest, row.round) for row in rows if row.reason is None
        )
