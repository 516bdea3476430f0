"""Converts between torch modules and arrays, and cuts a network to a smaller one."""

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edge_client.models.fixed_state import distinct, sent_tensors
from edge_client.models.modes import evaluating
from edge_client.pruning.index_sets import check_spec, cut_axes, expect_shape
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from schemas.tensors.arrays import ComputedArrays, blocks, kind_of, rows_of

Arrays = Mapping[str, NDArray[Any]]


def arrays_of(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Copies of all floating-point parameters and buffers, in float32."""
    tensors = sent_tensors(module).items()
    return {name: np.array(tensor.detach().to("cpu", torch.float32).numpy()) for name, tensor in tensors}


def trained_since(module: nn.Module, received: Arrays) -> ComputedArrays:
    """The module's arrays minus `received`, in float32, computed when read.

    The module must not change meanwhile; `received` is read again, in blocks if it is lazy.
    """
    return changes_of(sent_tensors(module), received)


def changes_of(tensors: Mapping[str, Tensor], received: Arrays) -> ComputedArrays:
    """As `trained_since`, for the tensors of a module by name."""

    def make(name: str, start: int, stop: int) -> NDArray[Any]:
        tensor = tensors[name].detach()
        rows = tensor[start:stop] if tensor.ndim else tensor
        trained: NDArray[Any] = rows.to("cpu", torch.float32).numpy()
        return trained - rows_of(received, name, start, stop)

    kinds = {name: (np.dtype(np.float32), tuple(tensor.shape)) for name, tensor in tensors.items()}
    return ComputedArrays(kinds, make)


def load_arrays(module: nn.Module, arrays: Arrays, *, there: Collection[str] = ()) -> None:
    """Write arrays into a module in place; `InvariantError` unless names and shapes are the module's own.

    Those that are `there` already are not read.

    A tensor with several names gets the array of the first, here and in `borrow_arrays`.
    """
    tensors = sent_tensors(module)
    if tensors.keys() != arrays.keys():
        odd = sorted(tensors.keys() ^ arrays.keys())[:5]
        raise InvariantError(f"arrays and module differ in {odd}")
    kinds = {name: kind_of(arrays, name) for name in tensors}
    for name, tensor in tensors.items():
        expect_shape(name, kinds[name][1], tuple(tensor.shape))
    with torch.no_grad():
        for name, tensor in distinct(tensors).items():
            for start, stop in blocks(kinds[name]) if name not in there else ():
                # Copies read-only rows, which torch does not accept.
                rows = np.require(rows_of(arrays, name, start, stop), requirements=["C", "W"])
                (tensor[start:stop] if tensor.ndim else tensor).copy_(torch.from_numpy(rows))


def hollow(module: nn.Module) -> nn.Module:
    """A copy with shapes and types but without numbers, for `borrow_arrays`."""
    empty = {id(tensor): _move_to_meta(tensor) for tensor in sent_tensors(module).values()}
    return copy.deepcopy(module, empty)


def borrow_arrays(module: nn.Module, arrays: Arrays) -> None:
    """Use these arrays as the module's parameters without a copy; the module must not be trained.

    Buffers, which a forward pass may change, and arrays of another type are copied.
    """
    tensors = sent_tensors(module)
    held = {id(tensor): _borrow_array(tensor, arrays[name]) for name, tensor in distinct(tensors).items()}
    for name, tensor in tensors.items():
        owner, _, attribute = name.rpartition(".")
        setattr(module.get_submodule(owner), attribute, held[id(tensor)])


def _borrow_array(tensor: Tensor, array: NDArray[Any]) -> Tensor:
    if isinstance(tensor, nn.Parameter):
        borrowed = torch.from_numpy(np.require(array, requirements=["C", "W"])).to(tensor.dtype)
        return nn.Parameter(borrowed, requires_grad=False)
    return torch.from_numpy(np.array(array)).to(tensor.dtype)


def _move_to_meta(tensor: Tensor) -> Tensor:
    empty = tensor.detach().to("meta")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def compact(module: nn.Module, spec: SubModelSpec, channel_map: ChannelMap) -> nn.Module:
    """A dense copy of `module` with only the channels of `spec`.

    Raises `InvariantError` if the map or the spec is of another network.
    """
    check_spec(spec, channel_map)
    return cut_down(copy.deepcopy(module), spec, channel_map)


def cut_down(module: nn.Module, spec: SubModelSpec, channel_map: ChannelMap) -> nn.Module:
    """As `compact`, but in place; returns the module."""
    check_spec(spec, channel_map)
    for layer in _cut_tensors(module, spec, channel_map):
        kinds = (REFIT[kind] for kind in type(layer).__mro__ if kind in REFIT)
        refit = next(kinds, None)
        if refit is not None:
            refit(layer)
    return module


def parameter_count(module: nn.Module) -> int:
    """The number of a module's parameters, without buffers."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_macs(module: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Multiply-accumulates of convolutions, linear layers and products for one input of `input_shape`.

    A module that computes with constants states those of its own as `fixed_macs`.
    """
    counts: list[int] = []

    def count(layer: Any, inputs: object, output: Tensor) -> None:
        counts.append(output.numel() * layer.weight[0].numel())

    hooks = [layer.register_forward_hook(count) for layer in module.modules() if isinstance(layer, COUNTED)]
    like = next(module.parameters(), torch.zeros(()))
    try:
        with evaluating(module), torch.no_grad(), _Products(counts):
            module(torch.zeros(1, *input_shape, dtype=like.dtype, device=like.device))
    finally:
        for hook in hooks:
            hook.remove()
    return sum(counts) + sum(getattr(layer, "fixed_macs", 0) for layer in module.modules())


COUNTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def _of_product(result: Tensor, input: Tensor, *_: Any, **__: Any) -> int:
    return result.numel() * input.shape[-1]


def _of_attention(result: Tensor, query: Tensor, key: Tensor, *_: Any, **__: Any) -> int:
    # Each query has a product with every key, and each output is a sum over the values of all keys.
    return (query.numel() + result.numel()) * key.shape[-2]


# Multiply-accumulates of functions, from their result and arguments; parameters have torch's names.
PRODUCTS: dict[Callable[..., Any], Callable[..., int]] = {
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm), _of_product),
    functional.scaled_dot_product_attention: _of_attention,
}


class _Products(TorchFunctionMode):
    """Adds the multiply-accumulates of products of tensors, such as those of attention, to `counts`."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        if func in PRODUCTS:
            self._counts.append(PRODUCTS[func](result, *args, **named))
        return result


def _cut_tensors(module: nn.Module, spec: SubModelSpec, channel_map: ChannelMap) -> list[nn.Module]:
    """Cut all tensors; returns the layers that have other tensors then, each once."""
    layers: dict[int, nn.Module] = {}
    done: dict[int, Tensor] = {}
    for name, tensor in sent_tensors(module).items():
        layout = channel_map.parameters.get(name)
        if layout is None or layout.shape != tuple(tensor.shape):
            raise InvariantError(f"{name!r} of shape {tuple(tensor.shape)} is not in the channel map")
        # A tensor with two names remains one tensor.
        cut = done.setdefault(id(tensor), _cut(tensor, layout, spec))
        if cut is not tensor:
            owner, _, attribute = name.rpartition(".")
            layer = module.get_submodule(owner)
            setattr(layer, attribute, cut)
            layers[id(layer)] = layer
    return [*layers.values()]


def _cut(tensor: Tensor, layout: ParameterLayout, spec: SubModelSpec) -> Tensor:
    axes = cut_axes(layout, spec)
    if not axes:
        return tensor
    cut = tensor.detach()
    for axis, positions in axes.items():
        cut = cut.index_select(axis, torch.from_numpy(positions).to(cut.device))
    return nn.Parameter(cut, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else cut


def _refit_convolution(layer: Any) -> None:
    outputs, inputs = layer.weight.shape[:2]
    if layer.groups > 1 and layer.in_channels == layer.out_channels:
        layer.groups = outputs // inputs
    layer.out_channels, layer.in_channels = outputs, inputs * layer.groups


def _refit_linear(layer: Any) -> None:
    layer.out_features, layer.in_features = layer.weight.shape


def _refit_channel_norm(layer: Any) -> None:
    tensor = layer.weight if layer.weight is not None else layer.running_mean
    if tensor is not None:
        layer.num_features = len(tensor)


def _refit_group_norm(layer: Any) -> None:
    if layer.weight is not None:
        # A single norm group remains one; several keep their width.
        if layer.num_groups > 1:
            layer.num_groups = len(layer.weight) * layer.num_groups // layer.num_channels
        layer.num_channels = len(layer.weight)


def _refit_layer_norm(layer: Any) -> None:
    if layer.weight is not None:
        layer.normalized_shape = tuple(layer.weight.shape)


def _refit_prelu(layer: Any) -> None:
    layer.num_parameters = len(layer.weight)


_CHANNEL_NORMS: tuple[type[nn.Module], ...] = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)
# By the layer's type, or the one that it is derived from.
REFIT: dict[type[nn.Module], Callable[[Any], None]] = {
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _refit_convolution),
    **dict.fromkeys(_CHANNEL_NORMS, _refit_channel_norm),
    nn.Linear: _refit_linear,
    nn.GroupNorm: _refit_group_norm,
    nn.LayerNorm: _refit_layer_norm,
    nn.PReLU: _refit_prelu,
}
