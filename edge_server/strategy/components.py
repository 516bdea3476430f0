"""Make a strategy's components from the names and options in a recipe."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from edge_client.compression import chain, downlink
from edge_client.pruning.channel_selection import Ratio
from edge_client.system.plugins import options_of
from edge_client.training.objectives.registry import OBJECTIVES
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.groups.widths import OBJECTIVE as ORDERED_DROPOUT
from edge_server.strategy.optimizer.optimizers import SERVER_OPTIMIZERS
from edge_server.strategy.pruning.own_parts import OWN_PARTS
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.selection.policies import RATIOS, SCHEDULES, SELECTIONS
from edge_server.strategy.strategy import Strategy
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.base import kebab
from schemas.errors import ConfigError, nearest, reason_of
from schemas.strategy import Component, StrategySpec

T = TypeVar("T")


def make_component(
    concept: str, registry: Mapping[str, Callable[..., T]], component: Component, **provided: object
) -> T:
    """Call the registered factory of `component`; raises `ConfigError` with the nearest names.

    `provided` are arguments of the run for the factories that take them; no option may have such a name.
    """
    factory = registry.get(component.name)
    if factory is None:
        raise ConfigError(f"unknown {concept} '{component.name}'{nearest(component.name, registry)}")
    parameters = options_of(factory)
    allowed, named = set(parameters) - set(provided), f"{concept} '{component.name}'"
    options = {
        key: _check_option(named, factory, key, value, allowed) for key, value in component.options.items()
    }
    wanted = {name: value for name, value in provided.items() if name in parameters}
    try:
        return factory(**wanted, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{named}: {error}") from error


def _check_option(
    named: str, factory: Callable[..., object], option: str, value: object, allowed: set[str]
) -> object:
    """The value as the factory's annotation has it; raises `ConfigError` for an option that it lacks."""
    if option not in allowed:
        hint = nearest(kebab(option), map(kebab, allowed))
        raise ConfigError(f"{named} has no option '{kebab(option)}'{hint}")
    annotated = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    try:
        return TypeAdapter(get_type_hints(annotated)[option]).validate_python(value)
    except ValidationError as error:
        reason = reason_of(error.errors(include_url=False)[0])
        raise ConfigError(f"{named}: {kebab(option)}: {reason}, got {value!r}") from error


# Build a strategy from the names and options in a recipe.
_ALL_DEVICES = Component(name="constant", options={"value": 1.0})


def make_strategy(
    spec: StrategySpec, ratios: tuple[Ratio, ...], *, rounds: int = 10, seed: int = 0
) -> Strategy:
    """Build every component that the spec names; raises `ConfigError` for the first that is wrong.

    `ratios`, `rounds` and `seed` are the run's, for components that ask for them.
    """
    run = {"rounds": rounds, "seed": seed}
    fraction = make_component("schedule", SCHEDULES, spec.fraction or _ALL_DEVICES, **run)
    epochs = make_component("schedule", SCHEDULES, spec.local_epochs, **run) if spec.local_epochs else None
    chain.make_chain(spec.uplink or ())
    # An objective that is unknown is refused elsewhere.
    measuring, summing = (
        tuple(o for o in spec.objectives if getattr(OBJECTIVES.get(o.name), kind, False))
        for kind in ("measures", "sums")
    )
    # Without smaller tiers the objective trains nothing else, but keeps frozen layers in every step.
    idle = (ORDERED_DROPOUT,) if spec.ratio.name == "by-tier" and not any(ratios) else ()
    left_out = {component.name for component in (*measuring, *summing)} | {*idle}
    own_order = any(TRANSFORMS.traits(each.name).moves_channels for each in spec.transforms)
    ranks_to_cut = PRUNERS.traits(spec.pruner.name).ranks_channels and not own_order
    return Strategy(
        fraction=fraction,
        local_epochs=epochs,
        selection=make_component("selection", SELECTIONS, spec.selection),
        ratio=make_component("ratio policy", RATIOS, spec.ratio, ratios=ratios),
        pruner=make_component("pruner", PRUNERS, spec.pruner),
        objectives=tuple(component for component in spec.objectives if component.name not in left_out),
        groups=tuple(make_component("group rule", GROUPS, rule) for rule in spec.groups),
        transforms=tuple(make_component("transform", TRANSFORMS, transform) for transform in spec.transforms),
        weighting=make_component("weighting", WEIGHTINGS, spec.weighting),
        combiner=make_component("combiner", COMBINERS, spec.combiner),
        server_optimizer=make_component("server optimizer", SERVER_OPTIMIZERS, spec.server_optimizer),
        own_order=own_order,
        uplink=spec.uplink or (),
        downlink=downlink.make_downlink(spec.downlink or ()),
        measuring=measuring,
        measure_every=rounds,
        summing=summing,
        sum_rounds=1 if spec.first_round else None,
        summed=not any(needs_each_update(spec)),
        tiers=ratios if ranks_to_cut and RATIOS.traits(spec.ratio.name).is_steady else (),
        own=make_component("own part", OWN_PARTS, spec.own) if spec.own else None,
    )


def needs_each_update(spec: StrategySpec) -> Iterator[str]:
    """The components that need every update by itself, as "combiner 'median'"; none for sums.

    The sum of the updates of a strategy without any is exact (`aggregation.accumulator`), so it may be added
    in parts, in any order: by several processes, or at several sites. What a device sends besides its model
    (metrics, scores, small groups) is still seen device by device.
    """
    if not COMBINERS.traits(spec.combiner.name).is_sum:
        yield f"combiner '{spec.combiner.name}'"
    if not WEIGHTINGS.traits(spec.weighting.name).counted:
        yield f"weighting '{spec.weighting.name}'"
    if SELECTIONS.traits(spec.selection.name).compares_models:
        yield f"selection '{spec.selection.name}'"
    for transform in spec.transforms:
        if not TRANSFORMS.traits(transform.name).is_single:
            yield f"transform '{transform.name}'"
    for group in spec.groups:
        if not GROUPS.traits(group.name).ignores_models:
            yield f"group '{group.name}'"
