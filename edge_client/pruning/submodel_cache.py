"""A cache of sub-models: building a network costs more than loading weights into it."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from edge_client.models.build import build_blank
from edge_client.pruning.surgery import cut_down, load_arrays
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays
from schemas.values import ModelSpec


class SubModelCache:
    """The last `limit` sub-models, on a torch device; use one at a time."""

    def __init__(self, limit: int = 1, *, device: str = "cpu") -> None:
        self._limit, self._device = limit, device
        self._ready: OrderedDict[str, tuple[nn.Module, dict[str, Tensor]]] = OrderedDict()

    def get(self, model: ModelSpec, spec: SubModelSpec, channel_map: ChannelMap, params: Arrays) -> nn.Module:
        """The network of `spec` with parameters `params`, in the state of a new one."""
        key = f"{model.model_dump_json()} {spec.model_dump_json()}"
        if key not in self._ready:
            module = cut_down(build_blank(model), spec, channel_map).to(self._device)
            self._ready[key] = (module, _counters(module))
        self._ready.move_to_end(key)
        while len(self._ready) > self._limit:
            self._ready.popitem(last=False)
        module, counters = self._ready[key]
        module.zero_grad(set_to_none=True)
        load_arrays(module, params)
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in counters:
                    buffer.copy_(counters[name])
        return module


def _counters(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that are not sent, such as the batch counter of a normalisation."""
    return {n: buffer.clone() for n, buffer in module.named_buffers() if not buffer.is_floating_point()}
