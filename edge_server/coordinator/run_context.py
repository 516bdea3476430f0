"""What stays the same during a run: its configuration, strategy, network, test data and privacy mechanism."""

import hashlib
import math
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from edge_client.data.tasks.registry import learning_task
from edge_client.models import build, fixed_state, registry
from edge_client.pruning.channel_graph.trace import trace
from edge_client.pruning.channel_selection import group_ratios
from edge_server.config.config import Config
from edge_server.config.test_data import describe_inputs
from edge_server.coordinator import evaluation, network_check
from edge_server.coordinator.tasks.task import TaskTemplate
from edge_server.observability.counters import Durations
from edge_server.rounds.agreed_lists import ClassList, ColumnList
from edge_server.storage.records import RoundRecord, TrainedShare
from edge_server.strategy.aggregation.transforms import normalised_layers
from edge_server.strategy.privacy import mechanism as dp
from edge_server.strategy.privacy.accounting import KEY_BYTES
from edge_server.strategy.pruning.own_parts import OwnPart
from edge_server.strategy.pruning.trained_part import TrainedParts, find_trained_parts
from edge_server.strategy.strategy import Network, Plan, State, Strategy
from schemas import messages, values
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays
from schemas.tensors.chunks import decode_json, encode_json


def repeatable_secret(seed: int) -> bytes:
    """The secret of a simulation. The seed reveals the noise, which is acceptable for simulated devices."""
    return hashlib.sha256(f"simulated noise {seed}".encode()).digest()[:KEY_BYTES]


class PrivacyGuard:
    """Keeps the part of the strategy's state that belongs to the mechanism; does nothing without one."""

    def __init__(self, config: Config, mechanism: dp.Gaussian | None) -> None:
        self._settings, self._mechanism = config.privacy, mechanism

    @property
    def on(self) -> bool:
        return self._mechanism is not None

    def start_privacy(self, state: State, secret: bytes | None) -> State:
        """The state before round one; a resumed state keeps its secret and the privacy that it has spent."""
        if self._mechanism is None or state.privacy is not None:
            return state
        drawn = secrets.token_bytes(KEY_BYTES) if secret is None else secret
        return replace(state, privacy=dp.initial_state(self._mechanism, drawn))

    def entropy(self, state: State) -> list[int]:
        """The secret part of the seed for choosing clients, as others may know the configured seed."""
        if self._mechanism is None:
            return []
        secret = bytes.fromhex(_privacy_of(state)["secret"])
        return [int.from_bytes(hashlib.blake2b(b"choice", key=secret, digest_size=16).digest())]

    def with_plan(self, state: State, plan: Plan, *, population: int) -> State:
        """The state with the clients of the next round, which were chosen from a `population`."""
        if self._mechanism is None:
            return state
        cuts = [assignment.cut for assignment in plan.assignments.values()]
        known = dp.with_plan(
            _privacy_of(state), state.round + 1, cuts, needed=plan.needed, population=population
        )
        return replace(state, privacy=known)

    def over_budget(self, state: State) -> str:
        """Why the planned round must not begin; empty if it may."""
        return "" if self._mechanism is None else dp.over_budget(self._mechanism, _privacy_of(state))

    def strip_own_metrics(self, record: RoundRecord) -> RoundRecord:
        """The record without the devices' own metrics, which no noise protects."""
        if self._mechanism is None or self._settings.release_metrics:
            return record
        names = ("client_metrics", "own_metrics", "measured", "trained_accuracy", "dead_channels", "features")
        update: dict[str, Any] = {name: {} for name in names} | {"one_answer": ()}
        return record.model_copy(update=update | dict.fromkeys(("train_loss", "client_accuracy")))

    def provenance(self, state: State) -> Mapping[str, str]:
        """The privacy guarantee of a model, for its provenance."""
        return {} if self._mechanism is None else dp.provenance(self._mechanism, _privacy_of(state))


def _privacy_of(state: State) -> dp.PrivacyState:
    assert state.privacy is not None
    return state.privacy


@dataclass(frozen=True)
class RunContext:
    """The constants of one run.

    A `resumable` run keeps the strategy's state after every round. A `durable` one waits for the disk; any
    other outlives its process but not a power cut, and archives no updates. `notices` are shown to the user
    before the run begins. `drawn` is what the network's factory has drawn here besides its weights.
    """

    config: Config
    run: str
    strategy: Strategy
    network: Network
    testing: evaluation.Testing
    privacy: PrivacyGuard
    resumable: bool
    durable: bool
    notices: tuple[str, ...] = ()
    drawn: Arrays = field(default_factory=dict)
    durations: Durations = field(default_factory=Durations)

    @property
    def spec(self) -> values.ModelSpec:
        return self.testing.model_spec

    @property
    def channel_map(self) -> ChannelMap:
        return self.network.channel_map

    @property
    def classes(self) -> ClassList:
        """The model's classes, with their names as far as they are known."""
        task, names = learning_task(self.spec.task), self.testing.classes
        return ClassList(
            self.spec.num_classes if task.has_named_outputs else 0,
            names,
            from_zero=self.testing.data is not None and not names,
            measured=task.labels == "numbers",
        )

    @property
    def columns(self) -> ColumnList:
        """The model's inputs, with their columns as far as they are known."""
        return ColumnList(self.spec.input_shape, self.testing.columns)

    @property
    def still(self) -> frozenset[str]:
        """The arrays that no device trains."""
        return self.network.parts.frozen(self.channel_map)

    @property
    def parts(self) -> Mapping[str, str]:
        """The parts that the same tiers train, by which updates are compared."""
        return self.network.parts.by_tiers(self.channel_map)

    @property
    def trained_share(self) -> TrainedShare | None:
        """How many numbers devices train; None if all."""
        numbers = self.network.parts.count_trained(self.channel_map)
        sizes = {name: math.prod(layout.shape) for name, layout in self.channel_map.parameters.items()}
        frozen = sum(sizes[name] for name in self.still)
        return TrainedShare(numbers=numbers, of=sum(sizes.values()), frozen=frozen) if numbers else None

    @property
    def own_layers(self) -> tuple[str, ...]:
        """The layers of each device's model file that are its own."""
        own = self.strategy.own
        return own.layers(self.network.registered_map) if own is not None else ()

    @property
    def task_terms(self) -> TaskTemplate:
        config, preprocessing = self.config_of_devices, self.testing.preprocessing
        return TaskTemplate(config, self.run, self.spec, preprocessing, self.strategy.uplink)

    @property
    def config_of_devices(self) -> Config:
        """The configuration by which devices train: with plain steps where network or length ask for them."""
        training, rounds = self.config.training, self.config.federation.last_round
        fits = training.sam_normalised or not any(normalised_layers(self.channel_map))
        if fits and rounds * training.local_epochs >= training.sam_passes:
            return self.config
        plain = training.model_copy(update={"sam_radius": 0.0})
        return self.config.model_copy(update={"training": plain})

    def site_terms(self, site: str) -> messages.SiteTerms:
        """What the gateway of a site needs to examine and add updates."""
        strategy, run = self.config.strategy, self.config.federation
        return messages.SiteTerms(
            federation=run.name,
            site=site,
            run=self.run,
            sites=run.sites,
            groups=strategy.groups,
            transforms=strategy.transforms,
            parts=self.parts,
            uploads_at_once=self.config.clients.uploads_at_once,
        )


def make_context(
    config: Config, run: str, testing: evaluation.Testing, *, resumable: bool, durable: bool
) -> tuple[RunContext, nn.Module]:
    """The run's context, and its network with the weights of the seed.

    Raises `ConfigError` for a network that does not fit its classes or its recipe.
    """
    strategy = config.make_strategy()
    module = build.build_model(testing.model_spec, seed=config.federation.seed)
    drawn = fixed_state.drawn_state(testing.model_spec, module)
    # Decoded from JSON, so that the server sums over parameters in the order in which every reader does.
    traced = trace(module, testing.model_spec.input_shape)
    channel_map = decode_json(ChannelMap, encode_json(traced.channel_map))
    parts = _trained_parts(config, module, testing.model_spec, traced.channel_map)
    shown = replace(registry.entry(config.model.name), multiple=config.tiers.keep_multiple)
    network = Network(shown, channel_map, parts, tuple(traced.channel_map.parameters))
    for ratio in config.tiers.ratios:
        group_ratios(network.entry, ratio, channel_map)
    network_check.check_outputs(module, testing.model_spec)
    if strategy.statistics:
        network_check.check_features(testing.model_spec)
    own = _own_layers(strategy.own, module, testing.model_spec, network.registered_map)
    privacy = PrivacyGuard(config, strategy.privacy)
    whole = (
        network_check.unpruned_notice(config, network),
        network_check.untraced_notice(config, traced.stops),
    )
    measured = network_check.unmeasured_notice(config, strategy, network)
    unscaled = network_check.unscaled_notice(config, testing.model_spec)
    inputs, kept = describe_inputs(testing.model_spec, testing.preprocessing), _describe_kept(strategy, own)
    told = (*whole, unscaled, inputs, measured, kept)
    notices = tuple(text for text in told if text)
    context = RunContext(config, run, strategy, network, testing, privacy, resumable, durable, notices, drawn)
    if share := context.trained_share:
        context = replace(context, notices=(*notices, f"devices train {share.in_words()}"))
    return context, module


def _describe_kept(strategy: Strategy, own: tuple[str, ...]) -> str:
    """What devices keep for themselves, for the user; empty if nothing."""
    if strategy.withholds:
        return f"devices keep {', '.join(own)} for themselves: they alone measure their models"
    return "devices train a model of their own in addition to the shared one, and export it" if own else ""


def _own_layers(
    own: OwnPart | None, module: nn.Module, spec: values.ModelSpec, channel_map: ChannelMap
) -> tuple[str, ...]:
    """The layers that devices keep; `ConfigError` for a network that has none."""
    if own is None:
        return ()
    if own.needs_header:
        _check_header(module, spec)
    layers = own.layers(channel_map)
    tensors = fixed_state.sent_tensors(module)
    if tied := _find_divided(tensors, {name for name in tensors if name.rpartition(".")[0] in layers}):
        raise ConfigError(
            f"{tied} are one weight, and a device would keep the one for itself and share the other",
            key="[strategy] own",
            remedy="name both layers, or neither",
        )
    return layers


def _check_header(module: nn.Module, spec: values.ModelSpec) -> None:
    try:
        build.header_name(module, spec.input_shape)
    except ConfigError as error:
        raise ConfigError(
            str(error),
            key="[strategy] own",
            remedy='or name the layers: { name = "named", names = ["head.*"] }',
        ) from error


def _trained_parts(
    config: Config, module: nn.Module, spec: values.ModelSpec, channel_map: ChannelMap
) -> TrainedParts:
    """What each tier trains; `ConfigError` for a statement that does not fit the network."""
    head = partial(build.header_name, module, spec.input_shape)
    tensors = fixed_state.sent_tensors(module)
    tied = {name for pair in _find_tied(tensors) for name in pair}
    parts = find_trained_parts(config.trained_parts, channel_map, head, ranks=config.ranks, tied=tied)
    for names in filter(None, parts.tiers):
        if pair := _find_divided(tensors, names):
            raise ConfigError(
                f"{pair} are one weight, and only one of them would be trained",
                key="[training] train",
                remedy="name both, or neither",
            )
    return parts


def _find_tied(tensors: Mapping[str, Tensor]) -> list[tuple[str, str]]:
    """Pairs of names of one weight."""
    firsts = {id(tensor): name for name, tensor in fixed_state.distinct(tensors).items()}
    pairs = [(name, firsts[id(tensor)]) for name, tensor in tensors.items()]
    return [(name, first) for name, first in pairs if name != first]


def _find_divided(tensors: Mapping[str, Tensor], names: Collection[str]) -> str:
    """Two names of one weight, of which only one is among these names; empty if there are none."""
    divided = (pair for pair in _find_tied(tensors) if (pair[0] in names) != (pair[1] in names))
    return next((f"'{name}' and '{first}'" for name, first in divided), "")
