"""What boards have to do where layers are frozen: once for each example, and in each epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edge_client.training.cost_model import network_cost
from edge_server.config.board_profiles import PROFILES, BoardProfile
from edge_server.config.config import Config
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.tier_assignment import WidthWork
from edge_server.strategy.pruning.trained_part import Names
from schemas.values import TRAINING_PASSES

EXAMPLES = 100
"""Of a device, for its memory."""
IDEAL = "ideal"  # no board


@dataclass(frozen=True)
class TierCost:
    """Of one example with its mirror images the multiply-accumulates of the frozen layers, `once`, and of the
    training in `each` epoch. A training with `EXAMPLES` takes this `memory` in bytes, besides Python and its
    libraries.
    """

    tier: int
    once: int
    each: int
    memory: int

    def fits(self, board: BoardProfile) -> bool:
        return self.memory <= board.available_bytes


def tier_costs(coordinator: Coordinator, config: Config) -> tuple[TierCost, ...]:
    """The costs of each tier; empty where no layers are frozen, or all have to run in every step."""
    context, model = coordinator.context, coordinator.model
    if not context.still:
        return ()
    shape, copies = context.spec.input_shape, config.training.copies
    costs, work = dict[tuple[str, Names | None], TierCost](), WidthWork(model)
    found = list[TierCost]()
    for tier, spec in model.tier_specs().items():
        trained = context.network.parts.of(tier)
        same = spec.model_dump_json(), trained
        if same not in costs:
            each, whole = work.macs(spec, trained), work.macs(spec)
            if each == whole:
                return ()
            cost = network_cost(model.network.sub_model(model.params_of(spec), spec), shape, trained)
            memory = cost.training(config.training, examples=copies * EXAMPLES).total
            passes = copies * (whole - each), copies * TRAINING_PASSES * each
            costs[same] = TierCost(tier, *passes, memory)
        found.append(replace(costs[same], tier=tier))
    return tuple(found)


def describe_boards(costs: Sequence[TierCost]) -> Iterator[str]:
    """A line per tier, without those that cost as much as the one before: the weakest board that holds it."""
    before: TierCost | None = None
    for cost in costs:
        if before is None or (before.once, before.each, before.memory) != (cost.once, cost.each, cost.memory):
            holding = [board for board in PROFILES.values() if board.name != IDEAL and cost.fits(board)]
            yield (
                f"tier {cost.tier}: an example passes through the frozen layers once "
                f"({_macs(cost.once)}), and through the others in each epoch ({_macs(cost.each)} with the "
                f"backward pass); {EXAMPLES} examples take {cost.memory / 1e6:.0f} MB: "
                + (_describe_times(cost, holding[0]) if holding else "no board of the profiles has it")
            )
        before = cost


def _describe_times(cost: TierCost, board: BoardProfile) -> str:
    once, each = (2 * macs / board.training_flops for macs in (cost.once, cost.each))
    return f"a {board.name} has it, and takes {_time(once)} once and {_time(each)} in each epoch"


def _macs(count: int) -> str:
    return f"{count / 1e6:.3g} M multiply-accumulates"


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.2g} ms"
