"""Models as what a rollout offers."""

from edge_server.releases.rollout.state import Rollout, Words
from edge_server.releases.rollout.target import Target
from edge_server.rounds.tiers import tier_of
from schemas.messages import ClientReport, Message, ModelOffer, ModelReport, ModelWithdrawal
from schemas.messages.rollout_terms import TrialTerms
from schemas.topics import Channel, Role, rollout_filters
from schemas.values import CapabilityProfile


class ModelOffering:
    """Models: each device gets the file of its tier."""

    words = Words(
        thing="the new model",
        use="serve",
        uses="serves",
        fetches="fetches tier {tier}",
        compares="compares it with what it runs",
        watch="devices watch the new model for {seconds:g} s before they keep it (--watch)",
        command="edge-server rollout",
    )
    role: Role = "rollout"
    down = Channel.DOWN_ROLLOUT
    reports: type[ModelReport] | type[ClientReport] = ModelReport

    def filters(self, federation: str) -> tuple[str, ...]:
        return rollout_filters(federation)

    def tier(self, rollout: Rollout, device: str, profile: CapabilityProfile) -> int:
        """The device's stated tier, else that of the version's run, else by memory."""
        return tier_of(profile, max(rollout.files), given=rollout.device_tiers.get(device))

    def offer(self, rollout: Rollout, target: Target) -> Message:
        file, terms = rollout.files[target.tier], rollout.rules.terms
        assert isinstance(terms, TrialTerms)
        return ModelOffer(
            federation=rollout.federation,
            device=target.device,
            rollout=rollout.id,
            version=rollout.version,
            tier=target.tier,
            blob=file.ref,
            manifest=file.manifest,
            terms=terms,
        )

    def withdrawal(self, rollout: Rollout, target: Target) -> Message:
        return ModelWithdrawal(
            federation=rollout.federation,
            device=target.device,
            rollout=rollout.id,
            version=rollout.version,
            detail=rollout.why[:500],
        )


MODELS = ModelOffering()
