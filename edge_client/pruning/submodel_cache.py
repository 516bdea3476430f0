"""A cache of sub-models: building a network costs more than loading weights into it."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from edge_client.models import build, fixed_state
from edge_client.models.attributes import Attributes, attributes_of, differing_places, users_parts
from edge_client.pruning.surgery import cut_down, load_arrays
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.values import ModelSpec

STATELESS = "torchvision."  # networks that keep nothing of a forward pass


class Still(Protocol):
    """Arrays that no training changes."""

    @property
    def arrays(self) -> frozenset[str]:
        """Their names in the sub-model."""

    @property
    def name(self) -> str:
        """A name of their values."""


class SubModelCache:
    """The last `limit` sub-models, on a torch device; use one at a time."""

    def __init__(self, limit: int = 1, *, device: str = "cpu") -> None:
        self._limit, self._device = limit, device
        self._ready: OrderedDict[str, _Ready] = OrderedDict()

    def get(
        self,
        model: ModelSpec,
        spec: SubModelSpec,
        channel_map: ChannelMap,
        params: Arrays,
        fixed: Arrays | None = None,
        still: Still | None = None,
    ) -> nn.Module:
        """The network of `spec` with parameters `params` and `fixed` state, in the state of a new one.

        What is `still` is not loaded again if the network was last asked for with the same.
        Raises `PeerError` if it needs other fixed state.
        """
        fixed_state.check_given(model, fixed or {})
        key = f"{model.model_dump_json()} {spec.model_dump_json()}"
        ready = self._ready.get(key)
        if ready is None or ready.is_used_up:
            cut = cut_down(build.build_blank(model), spec, channel_map)
            self._ready[key] = ready = _Ready.of(cut, self._device)
        self._ready.move_to_end(key)
        while len(self._ready) > self._limit:
            self._ready.popitem(last=False)
        module = ready.module
        module.zero_grad(set_to_none=True)
        load_arrays(module, params, there=still.arrays if still and still.name == ready.still else ())
        ready.still = still.name if still else ""
        with torch.no_grad():
            for name, tensor in ready.fixed.items():
                tensor.copy_(ready.new[name])
        if fixed:
            fixed_state.fill_fixed(module, fixed)
        return module


@dataclass(eq=False)
class _Ready:
    """A module with all that it held when it was new, besides what it is given each time.

    `fixed` are its tensors that are not sent, such as the batch counter of a normalisation, `new` copies of
    them. `attributes` are what its `parts` of a user's own keep in Python attributes. `still` is the name of
    the arrays in it that no training changes.
    """

    module: nn.Module
    fixed: dict[str, Tensor]
    new: dict[str, Tensor]
    parts: list[tuple[str, nn.Module]]
    attributes: Attributes
    still: str = ""

    @classmethod
    def of(cls, module: nn.Module, device: str) -> Self:
        fixed = fixed_state.fixed_tensors(module.to(device))
        every = users_parts(module)
        parts = [(name, part) for name, part in every if not type(part).__module__.startswith(STATELESS)]
        new = {name: tensor.detach().clone() for name, tensor in fixed.items()}
        return cls(module, fixed, new, parts, attributes_of(module, parts))

    @property
    def is_used_up(self) -> bool:
        """Whether the last use has left something in the module that a new one lacks."""
        if not self.parts:
            return False
        tensors = {name: id(tensor) for name, tensor in fixed_state.fixed_tensors(self.module).items()}
        if tensors != {name: id(tensor) for name, tensor in self.fixed.items()}:
            return True
        return bool(differing_places(self.attributes, attributes_of(self.module, self.parts)))
