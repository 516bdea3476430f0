"""Releases of the client as what a rollout offers."""

from edge_server.releases.client.store import StoredRelease
from edge_server.releases.rollout.journal import new_id
from edge_server.releases.rollout.state import Rollout, RolloutRules, TierFile, Words
from edge_server.releases.rollout.target import Target
from schemas import topics, values
from schemas.messages import ClientOffer, ClientReport, ClientWithdrawal, Message, ModelReport, client_update
from schemas.security.client_release import ClientRelease

ONLY = 1  # The number of the only file: a release has one archive for all of its devices


class ClientOffering:
    """One release: each device gets the same archive."""

    words = Words(
        thing="the new client",
        use="run",
        uses="runs",
        fetches="fetches it",
        compares="installs and checks it next to the running client",
        watch="devices watch the new client for {seconds:g} s before they keep it (--watch)",
        command="edge-server client-release rollout",
    )
    role: topics.Role = "updates"
    down = topics.Channel.DOWN_FLEET
    reports: type[ModelReport] | type[ClientReport] = ClientReport

    def __init__(self, release: ClientRelease) -> None:
        self._release = release

    def filters(self, federation: str) -> tuple[str, ...]:
        return topics.operator_filters(federation)

    def tier(self, rollout: Rollout, device: str, profile: values.CapabilityProfile) -> int:
        return ONLY

    def offer(self, rollout: Rollout, target: Target) -> Message:
        file, terms = rollout.files[target.tier], rollout.rules.terms
        assert isinstance(terms, client_update.UpdateTerms)
        return ClientOffer(
            federation=rollout.federation,
            device=target.device,
            rollout=rollout.id,
            version=rollout.version,
            blob=file.ref,
            manifest=file.manifest,
            fits=self._release.fits,
            python=self._release.python,
            installed_bytes=self._release.installed_bytes,
            terms=terms,
        )

    def withdrawal(self, rollout: Rollout, target: Target) -> Message:
        return ClientWithdrawal(
            federation=rollout.federation,
            device=target.device,
            rollout=rollout.id,
            version=rollout.version,
            detail=rollout.why[:500],
        )


def new_rollout(stored: StoredRelease, rules: RolloutRules) -> Rollout:
    return Rollout(
        new_id(stored.name),
        stored.name,
        stored.federation,
        rules,
        {ONLY: TierFile(stored.ref, stored.signed)},
        ClientOffering(stored.release),
    )
