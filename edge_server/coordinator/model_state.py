"""The global model of a run with its strategy's state: in memory, and in the run folder after every round."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from edge_client.data.classes import shorten_names
from edge_client.data.columns import completed_by
from edge_client.models.build import header_name
from edge_client.models.fixed_state import fill_fixed
from edge_client.pruning.channel_selection import Ratio
from edge_client.pruning.surgery import arrays_of, parameter_count
from edge_server.config.test_data import describe_unscaled
from edge_server.config.units import names_text
from edge_server.coordinator.global_model import GlobalModel
from edge_server.coordinator.initial_model import InitialModel, RunModel, note_start, noted_start
from edge_server.coordinator.pretrained.files import KEY
from edge_server.coordinator.run_context import RunContext
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage import journal, records, recovery
from edge_server.storage.run_folder import RunFolder
from edge_server.strategy.aggregation.array_stores import NewArrayStore, store_arrays
from edge_server.strategy.closing import load_checkpoint
from edge_server.strategy.groups.device_sums import held_sums
from edge_server.strategy.groups.feature_sums import HeadRule
from edge_server.strategy.planning import params_of, tier_spec
from edge_server.strategy.strategy import State, start_state
from schemas.errors import ConfigError
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.tensors.files import FileGroups

log = logging.getLogger(__name__)


class ModelState:
    """The one mutable state of a run: planner, aggregator, rollback and exporter share it.

    `fixed` is what the network's factory has drawn besides its weights, as devices get it.
    `sha256` is the digest of the saved model; `undone` is the round that was given up last, until the next
    one is closed; `started_from` is the model that the run began with, if it was given one; `notices` are
    shown to the user before the run begins.
    """

    def __init__(
        self,
        context: RunContext,
        folder: RunFolder,
        signer: ManifestSigner,
        network: GlobalModel,
        state: State,
        *,
        fixed: Arrays,
        undone: journal.UndoneRound | None = None,
        started_from: records.StartedFrom | None = None,
        notices: tuple[str, ...] = (),
    ) -> None:
        self.context, self.network, self.state, self.undone = context, network, state, undone
        self.started_from, self.notices, self.fixed = started_from, notices, fixed
        self._folder, self._signer = folder, signer
        self.sha256 = ""

    def save(self, number: int, *, durable: bool) -> None:
        """Write the model after round `number` to the run folder, and sign it."""
        context = self.context
        manifest = {
            "federation": context.config.federation.name,
            "run": context.run,
            "model": context.spec.model_dump(mode="json"),
            "preprocessing": context.testing.preprocessing.model_dump(mode="json"),
            "tiers": {tier: spec.model_dump(mode="json") for tier, spec in self.tier_specs().items()},
        }
        self.sha256 = self._folder.save_model(
            number, self.state.params, context.channel_map, manifest, fixed=self.fixed, durable=durable
        )
        self._signer.model(self._folder.version(number) / "manifest.json", number, durable=durable)

    def save_checkpoint(self, *, durable: bool) -> None:
        """Write the strategy's state without the model, where the run may be resumed."""
        if self.context.resumable:
            self._folder.save_checkpoint(self.state, durable=durable)

    def add_clients(self, clients: Mapping[str, tuple[int, int]]) -> None:
        """Remember clients, as {name: (tier, examples)}."""
        self.state = replace(self.state, clients={**self.state.clients, **clients})

    def go_back(self, older: State, undone: journal.UndoneRound) -> None:
        """Replace the state by an `older` one; the round that led from it is `undone`."""
        self.state, self.undone = gone_back(older, self.state), undone

    def tier_spec(self, ratio: Ratio) -> SubModelSpec:
        """The part of the global model that a tier of this ratio holds."""
        return tier_spec(self.context.strategy, self.state, self.context.network, ratio)

    def tier_specs(self) -> dict[int, SubModelSpec]:
        """Every tier's sub-model; tiers count from 1."""
        ratios = self.context.config.tiers.ratios
        return {tier: self.tier_spec(ratio) for tier, ratio in enumerate(ratios, start=1)}

    def sub_model(self, tier: int) -> nn.Module:
        """The network that a tier trains, to be inspected."""
        spec = self.tier_spec(self.context.config.tiers.ratios[tier - 1])
        return self.network.sub_model(self.params_of(spec), spec)

    def params_of(self, spec: SubModelSpec) -> Arrays:
        """The full arrays that this sub-model is cut from."""
        return params_of(self.context.strategy, self.state, spec, self.context.channel_map)

    def tier_parameters(self) -> dict[int, int]:
        """The number of trainable parameters of each tier's network."""
        tiers = range(1, len(self.context.config.tiers.ratios) + 1)
        return {tier: parameter_count(self.sub_model(tier)) for tier in tiers}

    def provenance(self, tier: int, ratio: float) -> dict[str, str]:
        """The metadata of a model that is exported now."""
        return {
            "run_id": self.context.run,
            "round": str(self.state.round),
            "tier": str(tier),
            "prune_ratio": str(ratio),
            "parent_sha256": self.sha256,
            **self.context.privacy.provenance(self.state),
        }


def open_model(
    context: RunContext,
    module: nn.Module,
    folder: RunFolder,
    signer: ManifestSigner,
    *,
    keep: NewArrayStore,
    resume: recovery.Resumption | None,
    first: InitialModel | None,
    secret: bytes | None,
) -> ModelState:
    """The state of a new run, or of the one that `resume` describes.

    A new run starts from `first`, if it is given; `secret` is the 32 bytes that privacy's noise is made from.
    """
    params: Arrays = arrays_of(module)
    notices, started_from, fixed = context.notices, None, context.drawn
    if resume is not None and fixed:
        fixed = folder.read_fixed()
    if resume is None and first is not None:
        params, started_from = _read_first_model(context, folder, params, first)
        fixed = first.read_fixed(fixed)
        notices = (*notices, f"starts from {started_from.in_words()}")
        if started_from.weights is not None:
            notices = (*notices, *started_from.weights.in_lines())
            log.info("starts from %s", started_from.in_words())
            if stuck := _describe_stuck(context, module, started_from.weights):
                notices = (*notices, stuck)
            if unscaled := describe_unscaled(context.config, context.spec, context.testing.preprocessing):
                notices = (*notices, unscaled)
    elif context.config.model.from_ is not None:
        started_from = noted_start(folder)
    fill_fixed(module, fixed)
    network = GlobalModel(module, context.spec, context.channel_map, still=context.still)
    state = (
        start_state(context.strategy, params, keep=keep)
        if resume is None
        else _read_back(folder, resume, keep)
    )
    if resume is None and first is not None:
        state, kept = _with_earlier_sums(context, state, first, keep=keep)
        notices = (*notices, *kept)
        if isinstance(first, RunModel) and not context.config.federation.trains:
            state = _with_tiers_of(first, context, state, keep=keep)
    return ModelState(
        context,
        folder,
        signer,
        network,
        context.privacy.start_privacy(state, secret),
        fixed=fixed,
        undone=resume.undone if resume else None,
        started_from=started_from,
        notices=notices,
    )


def _describe_stuck(context: RunContext, module: nn.Module, weights: records.WeightsTaken) -> str:
    """The warning of arrays that are drawn anew although no device trains them, and that no sums solve."""
    frozen = context.network.parts.frozen(context.network.registered_map)
    stuck = [name for name in weights.drawn if name in frozen]
    if stuck and context.strategy.summing:
        head = f"{header_name(module, context.spec.input_shape)}."
        stuck = [name for name in stuck if not name.startswith(head)]
    if not stuck:
        return ""
    return (
        f"the weights lack {shorten_names(stuck)}, and no device trains what they lack, so that it stays "
        "random: name it in [training] train, or take other weights"
    )


def _read_first_model(
    context: RunContext, folder: RunFolder, own: Arrays, first: InitialModel
) -> tuple[Arrays, records.StartedFrom]:
    """The parameters of the model to start from, in the network's order; noted in the run folder."""
    testing = context.testing
    first.check_columns(testing.columns)
    params, about = first.read(context.spec, context.channel_map, own, testing.classes)
    if about.new_classes and not context.config.federation.trains:
        raise ConfigError(
            f"{first.stated} does not know {shorten_names(about.new_classes)}, and nothing is trained",
            key=KEY,
            remedy="leave such classes out of [data] classes",
        )
    if about.weights is not None and about.weights.drawn and not context.config.federation.trains:
        raise ConfigError(
            f"{first.stated} lacks {next(iter(about.weights.drawn))}, and nothing is trained",
            key=KEY,
            remedy="start from the model of a run",
        )
    # Its weights are in the order of its own columns.
    testing.agree(testing.classes or first.classes, completed_by(first.columns, [testing.columns]))
    note_start(folder, about)
    return {name: params[name] for name in own}, about


def _with_earlier_sums(
    context: RunContext, state: State, first: InitialModel, *, keep: NewArrayStore
) -> tuple[State, tuple[str, ...]]:
    """The state with the sums that the run of its first model holds, and a notice of them."""
    rule = next((r for r in context.strategy.groups if isinstance(r, HeadRule) and r.continues), None)
    if rule is None or not isinstance(first, RunModel):
        return state, ()
    earlier, rows = first.read_sums(rule.name, context.spec, context.testing.classes)
    folded = rule.continue_sums(earlier, rows, state.params, context.channel_map)
    devices = [sums.device for sums in held_sums(folded.held)]
    if not devices:
        return state, ()
    groups = {**state.groups, rule.name: store_arrays(folded.held, keep)}
    notice = f"begins with the sums of {names_text(devices)}, which {first.stated} holds"
    return replace(state, groups=groups, params=folded.params), (notice,)


def _with_tiers_of(first: RunModel, context: RunContext, state: State, *, keep: NewArrayStore) -> State:
    """The state with the tiers of a model that nobody trains: their channels, and arrays of their own."""
    held = first.groups()
    own = {
        rule.name: store_arrays(held[rule.name], keep)
        for rule in context.strategy.groups
        if (rule.owns or rule.measured) and rule.name in held and not isinstance(rule, HeadRule)
    }
    return replace(state, pruning=first.ranks(context.channel_map), groups={**state.groups, **own})


def _read_back(folder: RunFolder, resume: recovery.Resumption, keep: NewArrayStore) -> State:
    if resume.undone is None:
        return folder.load_state(resume.round, resume.state_sha256, keep=keep)
    return earlier_state(folder, resume.round, resume.undone.state_sha256, keep=keep)


def gone_back(older: State, newer: State) -> State:
    """The `older` state with the round number, clients and spent privacy of the `newer` one."""
    return replace(older, round=newer.round, clients=newer.clients, privacy=newer.privacy)


def earlier_state(folder: RunFolder, undone: int, sha256: str, *, keep: NewArrayStore) -> State:
    """The state that the round after the given-up round `undone` begins with, read back.

    The earlier state's files exist until that round is about to close; by then those of the given-up one have
    been overwritten. Raises `ConfigError` if neither can be read.
    """
    try:
        older = folder.load_state(undone - 1, sha256, keep=keep)
    except ConfigError:
        return folder.load_state(undone, sha256, keep=keep)
    given_up = load_checkpoint(folder.checkpoint(undone), FileGroups(folder.model(undone)), keep=keep)
    return gone_back(older, given_up)
