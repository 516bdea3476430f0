"""A stand-in for a card: its tensors are on `card:0`, hold a processor's tensor, and mix with no other.

As on a card, an operation with tensors of both devices fails, and numpy cannot read the card's. Autograd,
views and layouts are torch's own.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
MIXING = {aten._to_copy.default, aten.copy_.default, aten.index.Tensor}
"""Operations that take tensors of both devices."""


class CardModule:
    """`torch.card`: its generator, and how often what it keeps was returned."""

    def __init__(self) -> None:
        self._generator, self.returned = torch.Generator(), 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        """None that torch finds by itself: other tests of the process are to know nothing of it."""
        return 0

    def manual_seed_all(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def get_rng_state(self) -> Tensor:
        return self._generator.get_state()

    def set_rng_state(self, state: Tensor) -> None:
        self._generator.set_state(state)

    def empty_cache(self) -> None:
        self.returned += 1


TORCH_CARD = CardModule()
torch.utils.rename_privateuse1_backend("card")
torch._register_device_module("card", TORCH_CARD)
CARD = torch.device("card", 0)


class OnCard(Tensor):
    """A tensor on the card; `value` is the processor's with the numbers.

    For torch's own code it is a `meta` tensor, for which autograd starts no thread: forked tests cannot.
    """

    value: Tensor
    device = CARD  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, value: Tensor) -> "OnCard":
        made: OnCard = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            value.shape,
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device="meta",
        )
        made.value = value
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return run(func, args, dict(kwargs or {}))


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation where its tensors are; raises `RuntimeError`, as torch does, if they are apart."""
    given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    ours = {id(each.value): each for each in given if isinstance(each, OnCard)}
    if ours and func not in MIXING and any(each.ndim and not isinstance(each, OnCard) for each in given):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device")
    wanted = kwargs.get("device")
    is_ours = bool(ours) if wanted is None else torch.device(wanted).type in (CARD.type, "meta")
    if func is aten.copy_.default:
        is_ours = isinstance(args[0], OnCard)
    if wanted is not None:
        kwargs["device"] = torch.device("cpu")
    taken, named = tree_map_only(OnCard, lambda tensor: tensor.value, (args, kwargs))
    result = func(*taken, **named)
    if not is_ours:
        return result
    return tree_map_only(
        Tensor, lambda tensor: ours[id(tensor)] if id(tensor) in ours else OnCard(tensor), result
    )


class Card(TorchDispatchMode):
    """Gives torch the card inside. `refuse` is told each operation on the card, and may raise."""

    def __init__(self, refuse: Callable[[Any, tuple[Any, ...]], None] = lambda *_: None) -> None:
        super().__init__()
        self._refuse = refuse

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(isinstance(each, OnCard) for each in tree_leaves(args)):
            self._refuse(func, args)
        return run(func, args, dict(kwargs or {}))
