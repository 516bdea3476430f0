"""The fixed state of a network: what it holds besides the weights that are trained and sent.

Integers, truth values and hidden buffers are not averaged. Where a factory draws them, the server's travel
once with the model (the blob `fixed`), since equal seeds give equal numbers only under the same torch, and
devices build a network without drawing its weights. State in plain attributes is refused by name.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from edge_client.models.attributes import attributes_of, differing_places, is_equal
from edge_client.models.build import build_blank
from edge_client.models.registry import is_ours
from schemas.errors import ConfigError, PeerError
from schemas.tensors.arrays import Arrays
from schemas.values import ModelSpec

MAX_NAMES = 3
OTHER_SEEDS = (0x5EED, 0x5EEE, 0x5EEF)  # of other builds: one may be the run's, and few numbers may agree


def sent_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that travel as the model, and are averaged: all numbers with a point in the state dict."""
    state = module.state_dict(keep_vars=True)
    return {n: each for n, each in state.items() if isinstance(each, Tensor) and each.is_floating_point()}


def distinct(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor once, by the first of its names, whose array is the one that counts."""
    names: dict[int, str] = {}
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), name)
    return {name: tensors[name] for name in names.values()}


def fixed_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All other parameters and buffers, also those outside the state dict, by name."""
    sent = sent_tensors(module)
    every = (*module.named_parameters(), *module.named_buffers())
    same = {id(tensor) for tensor in sent.values()}
    return {name: tensor for name, tensor in every if id(tensor) not in same}


def drawn_state(spec: ModelSpec, module: nn.Module) -> dict[str, np.ndarray]:
    """The fixed tensors of `module`, the network `spec`, that another build of it has otherwise.

    Raises `ConfigError` for a network with other drawn state, which cannot travel.
    """
    if is_ours(spec.name):
        return {}
    mine, differing = fixed_tensors(module), set[str]()
    for seed in OTHER_SEEDS:
        other = build_blank(spec, seed=seed)
        _check_rest(spec, module, other)
        others = fixed_tensors(other)
        differing |= {name for name in mine if not is_equal(mine[name], others[name])}
    return {name: to_array(tensor) for name, tensor in mine.items() if name in differing}


@lru_cache(maxsize=8)
def drawn_names(spec: ModelSpec) -> frozenset[str]:
    """The names of `drawn_state` in a network that is built here."""
    return frozenset() if is_ours(spec.name) else frozenset(drawn_state(spec, build_blank(spec)))


def check_given(spec: ModelSpec, given: Collection[str]) -> None:
    """Raise `PeerError` unless a server has sent the fixed state that this network draws here."""
    if missing := sorted(drawn_names(spec) - set(given)):
        raise PeerError(
            f"the server did not send {_list_names(missing)}, which '{spec.name}' draws when it is built: "
            "both need the same network, and a server of this version of edge-federation"
        )


def fill_fixed(module: nn.Module, arrays: Arrays) -> None:
    """Write fixed tensors into `module` in place; raises `PeerError` for others than its own."""
    own = fixed_tensors(module)
    with torch.no_grad():
        for name in arrays:
            array = np.array(arrays[name])
            if name not in own or to_array(own[name]).shape != array.shape:
                raise PeerError(f"'{name}' {array.shape} is not a fixed state of {type(module).__name__}")
            given = torch.from_numpy(array)
            own[name].copy_(torch.view_as_complex(given) if own[name].is_complex() else given)


def to_array(tensor: Tensor) -> np.ndarray:
    """The numbers of a tensor in a type that travels, without loss."""
    plain = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    wide = plain.float() if plain.dtype in (torch.bfloat16, torch.float16) else plain
    return np.array(wide.cpu().numpy())


def _check_rest(spec: ModelSpec, module: nn.Module, other: nn.Module) -> None:
    """Raise `ConfigError` for a network whose other state is not the same in both builds."""
    mine, others = (_shapes(each) for each in (module, other))
    if mine != others:
        odd = sorted(name for name in {**mine, **others} if mine.get(name) != others.get(name))
        raise ConfigError(
            f"'{spec.name}' has other layers each time it is built ({_list_names(odd)}): decide them by the "
            "arguments of the factory, not by chance"
        )
    if trained := [n for n, each in module.named_parameters() if each.is_complex() and each.requires_grad]:
        raise ConfigError(
            f"'{spec.name}': {_list_names(trained)} is complex, and no complex parameter is averaged: keep "
            "its real and imaginary parts as two parameters, and use torch.complex in forward"
        )
    attributes = (attributes_of(each, [*each.named_modules()]) for each in (module, other))
    if odd := differing_places(*attributes):
        raise ConfigError(
            f"'{spec.name}': {_list_names(odd)} is drawn at random when the network is built, and kept "
            "where it does not travel with the model, so that each device would have another: use "
            'self.register_buffer("name", tensor), or nn.ModuleList for a list of layers'
        )


def _shapes(module: nn.Module) -> Mapping[str, tuple[int, ...]]:
    tensors = {**sent_tensors(module), **fixed_tensors(module)}
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _list_names(names: Collection[str]) -> str:
    shown = [f"'{name}'" for name in list(names)[:MAX_NAMES]]
    more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join([*shown, *more])
