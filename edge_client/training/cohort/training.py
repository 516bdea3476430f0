"""Local training of several devices in common steps, with the batches and draws that each has alone.

Results differ from those of `edge_client.training.loop` by rounding only. The devices' steps are sorted by
number, so that those that still train are always the first rows of the stack.
"""

import contextlib
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edge_client.models import attributes, modes
from edge_client.training import epochs, evaluation, loop, results
from edge_client.training.cohort.passes import EXTRA, Draws, Passes, Rows
from edge_client.training.cohort.stack import (
    Member,
    Stack,
    StackOptimizer,
    TrainsAlone,
    copy_module,
    find_parts,
)
from edge_client.training.objectives import base, registry
from schemas.strategy import TrainingPlan


@dataclass(frozen=True)
class Pass:
    """One pass over the data: its batches as places of examples; its steps are sharp if `radius` > 0."""

    batches: Sequence[NDArray[np.int64]]
    radius: float

    @property
    def work(self) -> int:
        """The epochs that it counts as."""
        return epochs.WORK if self.radius else 1


@dataclass(frozen=True, eq=False)
class Client:
    """A device in a cohort: its network, its examples on the device of that, and its objectives, set up."""

    member: Member
    plan: TrainingPlan
    inputs: Tensor
    labels: Tensor
    passes: Sequence[Pass]
    objectives: Sequence[base.LocalObjective]
    parts: Sequence[base.StepPart]
    share: float
    progress: epochs.EpochProgress = field(default_factory=epochs.EpochProgress)

    @property
    def steps(self) -> int:
        return sum(len(each.batches) for each in self.passes)

    @property
    def last_from(self) -> int:
        """The number of the last pass's first step."""
        return self.steps - len(self.passes[-1].batches)

    @property
    def observed_examples(self) -> int:
        """The examples of the last pass, each as often as it is passed forward."""
        last = self.passes[-1]
        return last.work * sum(map(len, last.batches))

    @cached_property
    def generator(self) -> torch.Generator:
        """Its random numbers, those of `seed_generators`."""
        return torch.Generator(modes.device_of(self.member.module)).manual_seed(self.plan.seed)

    @cached_property
    def radii(self) -> list[float]:
        """The radius of each step."""
        return [each.radius for each in self.passes for _ in each.batches]

    @cached_property
    def steps_before(self) -> list[int]:
        """The steps that count as taken before each step."""
        taken, done = list[int](), 0
        for each in self.passes:
            taken += range(done, done + len(each.batches))
            done += each.work * len(each.batches)
        return taken


def plan_passes(plan: TrainingPlan, examples: int, *, smallest: int) -> list[Pass]:
    """The passes of a training, which `edge_client.training.loop` makes one by one."""
    passes, finished = list[Pass](), 0
    orders = islice(epochs.epoch_orders(plan.seed, examples), max(1, plan.local_epochs)) if examples else ()
    for number, order in enumerate(orders):
        if number < finished:
            continue
        parts = np.split(order, range(plan.batch_size, examples, plan.batch_size))
        radius = epochs.epoch_radius(plan, finished) if plan.local_epochs else 0.0
        passes.append(Pass([part for part in parts if len(part) >= smallest], radius))
        finished += passes[-1].work
    return passes


def set_up(
    member: Member,
    plan: TrainingPlan,
    context: base.TrainingContext,
    *,
    outputs: int,
    smallest: int,
) -> Client:
    """Set up a device's objectives on its copy of the network, which is in training mode.

    `context` has the examples; batches have at least `smallest` ones. Raises `TrainsAlone` if an objective
    has a step of its own.
    """
    objectives, device = registry.build_objectives(plan.objectives), context.inputs.device
    parts = list[base.StepPart]()
    with attributes.seed_generators(plan.seed, device):
        for objective in objectives:
            objective.setup(member.module, context)
            part = objective.step_part(outputs)
            if part is None:
                raise TrainsAlone(f"the objective {type(objective).__name__} has a step of its own")
            parts.append(part)
    passes = plan_passes(plan, len(context.labels), smallest=smallest)
    share = context.spec.share(context.channel_map) if context.channel_map else 1.0
    return Client(member, plan, context.inputs, context.labels, passes, objectives, parts, share)


class CohortTraining:
    """One training of all `clients`, whose plans differ in their seeds alone; `run` may be called once.

    Client i has row i of the stack. Those with more steps come first.
    """

    def __init__(
        self,
        stack: Stack,
        clients: Sequence[Client],
        loss: evaluation.Loss,
        should_stop: Callable[[], bool],
        *,
        trained: Sequence[str] | None,
    ) -> None:
        first, count = clients[0], len(clients)
        network, self._plan, self._should_stop = first.member.network, first.plan, should_stop
        self._clients, self._device = clients, modes.device_of(first.member.module)
        # Rows that fill a batch up would change the statistics of a batch.
        self._exact = modes.normalises_batches(network, trained)
        changing = {stack.names[name] for name, weight in network.named_parameters() if weight.requires_grad}
        tensors = {name: tensor[:count] for name, tensor in stack.tensors.items()}
        self._extra = _stack_extra(clients)
        self._trained = {**{name: tensors[name] for name in tensors if name in changing}, **self._extra}
        self._fixed = {name: tensors[name] for name in tensors if name not in changing}
        self._buffers = [stack.names[name] for name, _ in network.named_buffers()]
        self._own = [
            _stack_own([client.parts[place].own for client in clients]) for place in range(len(first.parts))
        ]
        self._inputs = torch.cat([client.inputs for client in clients])
        self._labels = torch.cat([client.labels for client in clients])
        self._batches = _Batches(clients, self._device)
        self._observed: dict[str, Tensor] = {}
        own = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
        parts = {id(part) for part in find_parts(network, own)}
        self._passes = Passes(copy_module(network, own, parts, {}), stack.names, first.parts, loss)

    def run(self) -> list[results.TrainingResult]:
        """Train for the plan's epochs; the results in the order of the clients."""
        with contextlib.ExitStack() as closing:
            for client in self._clients:
                for objective in client.objectives:
                    closing.callback(objective.close)
            if self._plan.local_epochs:
                self._train()
            elif any(part.values for part in self._clients[0].parts):
                self._look()
            self._give_sums()
            return [_finish(client) for client in self._clients]

    def _train(self) -> None:
        optimizer = StackOptimizer(self._trained, self._plan)
        losses, rows = list[Tensor](), len(self._clients)
        for number, active in enumerate(self._batches.active):
            if self._should_stop():
                raise results.TrainingStopped("local training was stopped")
            if active < rows:
                optimizer.narrow(active)
                rows = active
            rates = [self._rate(client, number) for client in self._clients[:active]]
            gradients, plain = self._gradients(number, active)
            for place, part in enumerate(self._clients[0].parts):
                if part.correct is not None:
                    own = {name: tensor[:active] for name, tensor in self._own[place].items()}
                    gradients = {**gradients, **part.correct(gradients, own)}
            optimizer.step(gradients, rates)
            losses.append(plain)
            for client in self._clients[:active]:
                for part in client.parts:
                    if part.advance is not None:
                        part.advance()
        self._note_losses(losses)

    def _look(self) -> None:
        """One pass without gradients or batch statistics, as of a board that cannot train."""
        self._passes.train(nn.Module.eval)
        for number, active in enumerate(self._batches.active):
            if self._should_stop():
                raise results.TrainingStopped("local training was stopped")
            for rows, examples in self._batches.split(number, active, [()] * active, exact=False):
                self._observe(rows, number, self._passes.look(self._take(rows, active, examples)))

    def _rate(self, client: Client, number: int) -> float:
        share = client.share * math.prod(objective.share() for objective in client.objectives)
        return epochs.step_rate(self._plan, client.steps_before[number], share)

    def _gradients(self, number: int, active: int) -> tuple[base.Tensors, Tensor]:
        """The gradients [active, ...] and plain losses [active] of a step; changes the buffers."""
        networks = [_network_of(client) for client in self._clients[:active]]
        kinds = [
            (None if network is None else network.key, client.radii[number])
            for client, network in zip(self._clients, networks, strict=False)
        ]
        gradients: dict[str, Tensor] = {}
        losses: Tensor | None = None
        for rows, examples in self._batches.split(number, active, kinds, exact=self._exact):
            taken = self._take(rows, active, examples)
            network, radius = networks[rows[0]], kinds[rows[0]][1]
            found, plain, sums = self._passes.gradients(taken, network)
            self._observe(rows, number, sums)
            if radius:
                found, _, sums = self._passes.gradients(self._move_uphill(taken, found, radius), network)
                self._observe(rows, number, sums)
            if len(rows) == active:
                return found, plain
            index = torch.tensor(rows, device=self._device)
            for name in self._buffers:
                self._fixed[name].index_copy_(0, index, taken.fixed[name])
            losses = plain.new_zeros(active) if losses is None else losses
            losses.index_copy_(0, index, plain)
            for name, gradient in found.items():
                if name not in gradients:
                    gradients[name] = gradient.new_zeros((active, *gradient.shape[1:]))
                gradients[name].index_copy_(0, index, gradient)
        assert losses is not None
        return gradients, losses

    def _move_uphill(self, rows: Rows, gradients: base.Tensors, radius: float) -> Rows:
        """The rows with weights moved by `radius` along each network's gradient, and copies of buffers."""
        moved = {name: each for name, each in gradients.items() if name not in self._extra}
        squares = torch.stack([each.flatten(1).square().sum(1) for each in moved.values()])
        factors = radius / squares.sum(0).sqrt().clamp_min(epochs.SMALLEST_NORM)
        higher = {
            name: rows.trained[name] + each * factors.view(-1, *[1] * (each.ndim - 1))
            for name, each in moved.items()
        }
        copies = {name: rows.fixed[name].clone() for name in self._buffers}
        return replace(rows, trained={**rows.trained, **higher}, fixed={**rows.fixed, **copies})

    def _take(self, rows: Sequence[int], active: int, examples: "_Examples") -> Rows:
        """What the rows compute with in a step: views, if they are all that still train."""
        every = len(rows) == active
        index = None if every else torch.tensor(rows, device=self._device)

        def take(tensors: base.Tensors) -> base.Tensors:
            return {name: each[:active] if index is None else each[index] for name, each in tensors.items()}

        shape = examples.places.shape
        places = examples.places.flatten()
        inputs, labels = (each.index_select(0, places) for each in (self._inputs, self._labels))
        return Rows(
            take(self._trained),
            take(self._fixed),
            [take(own) for own in self._own],
            inputs.view(*shape, *inputs.shape[1:]),
            labels.view(*shape, *labels.shape[1:]),
            examples.shares,
            Draws([self._clients[row].generator for row in rows], examples.sizes),
        )

    def _observe(self, rows: Sequence[int], number: int, sums: base.Tensors) -> None:
        """Add up observed values over the examples of each client's last pass."""
        places = [place for place, row in enumerate(rows) if number >= self._clients[row].last_from]
        for name, each in sums.items() if places else ():
            if name not in self._observed:
                self._observed[name] = each.new_zeros((len(self._clients), *each.shape[1:]))
            whole, part = (
                torch.tensor(at, device=self._device) for at in ([rows[at] for at in places], places)
            )
            self._observed[name].index_add_(0, whole, each[part])

    def _give_sums(self) -> None:
        for row, client in enumerate(self._clients):
            for part in client.parts if client.steps else ():
                if part.take is not None:
                    part.take(
                        {name: each[row] for name, each in self._observed.items()}, client.observed_examples
                    )

    def _note_losses(self, losses: Sequence[Tensor]) -> None:
        """Give each client the mean loss of each of its passes."""
        every = np.full((len(losses), len(self._clients)), np.nan, np.float32)
        flat = torch.cat([*losses, torch.zeros(0, device=self._device)]).cpu().float().numpy()
        ends = np.cumsum([len(each) for each in losses])
        for number, part in enumerate(np.split(flat, ends)[:-1]):
            every[number, : len(part)] = part
        for row, client in enumerate(self._clients):
            done = 0
            for each in client.passes:
                counts = [len(batch) for batch in each.batches]
                mean = loop.mean_loss(every[done : done + len(counts), row], counts) if counts else None
                client.progress.add(results.bound_loss(mean), len(counts), epochs=each.work)
                done += len(counts)


@dataclass(frozen=True, eq=False)
class _Examples:
    """The examples of a step of N clients: places [N, B], their own number, and `shares` as in `Rows`."""

    places: Tensor
    sizes: Sequence[int]
    shares: Tensor | None


class _Batches:
    """The batches of each step; `active` are the clients that take part in it, the first ones of all."""

    def __init__(self, clients: Sequence[Client], device: torch.device) -> None:
        self._device, offset = device, 0
        self._batches = list[list[NDArray[np.int64]]]()
        for client in clients:
            self._batches.append([batch + offset for each in client.passes for batch in each.batches])
            offset += len(client.labels)
        lengths = [len(batches) for batches in self._batches]
        self.active = [sum(length > number for length in lengths) for number in range(max(lengths))]

    def split(
        self, number: int, active: int, kinds: Sequence[Hashable], *, exact: bool
    ) -> Iterator[tuple[list[int], _Examples]]:
        """The clients that compute in one go, all of one kind, with their examples.

        `exact`: their batches also have the same number of examples; shorter ones are filled up otherwise.
        """
        groups: dict[Hashable, list[int]] = {}
        for row in range(active):
            size = len(self._batches[row][number])
            groups.setdefault((kinds[row], size if exact else 0), []).append(row)
        for rows in groups.values():
            yield rows, self._examples([self._batches[row][number] for row in rows])

    def _examples(self, batches: Sequence[NDArray[np.int64]]) -> _Examples:
        sizes = np.array([len(batch) for batch in batches])
        width = int(sizes.max())
        places = np.stack([np.pad(batch, (0, width - len(batch)), mode="edge") for batch in batches])
        shares = None if (sizes == width).all() else (np.arange(width) < sizes[:, None]) / sizes[:, None]
        return _Examples(
            torch.from_numpy(places).to(self._device),
            sizes.tolist(),
            None if shares is None else torch.from_numpy(shares.astype(np.float32)).to(self._device),
        )


def _network_of(client: Client) -> base.StepNetwork | None:
    chosen = (objective.choose_network() for objective in client.objectives)
    return next((network for network in chosen if network is not None), None)


def _stack_extra(clients: Sequence[Client]) -> dict[str, Tensor]:
    """What objectives train besides the network, stacked; each client's own are views of its row."""
    stacks = {}
    for place, part in enumerate(clients[0].parts):
        for name, _ in part.extra.named_parameters() if part.extra is not None else ():
            own = [
                each.get_parameter(name)
                for client in clients
                if (each := client.parts[place].extra) is not None
            ]
            stacks[f"{EXTRA}{place}.{name}"] = stack = torch.stack([weight.detach() for weight in own])
            for row, weight in enumerate(own):
                weight.data = stack[row]
    return stacks


def _stack_own(own: Sequence[base.Tensors]) -> dict[str, Tensor]:
    return {name: torch.stack([each[name] for each in own]) for name in own[0]}


def _finish(client: Client) -> results.TrainingResult:
    groups = results.merge_groups(objective.finish() for objective in client.objectives)
    keeping = results.merge_groups(objective.keep() for objective in client.objectives)
    return results.TrainingResult(groups, client.progress.metrics(len(client.labels)), keeping)
