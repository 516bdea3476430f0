"""Memory use of a device: received and sent arrays are processed in blocks, never held in full."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import extract
from edge_client.pruning.surgery import arrays_of, borrow_arrays, hollow, load_arrays, trained_since
from edge_client.pruning.update_coordinates import in_sub_model
from edge_server.coordinator.global_model import GlobalModel
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import BLOCK_NUMBERS, AnyArray, ComputedArrays
from schemas.tensors.chunks import digest_of
from schemas.tensors.files import FileGroups, FlatGroups, digest_of_tensors, write_tensors
from schemas.values import ModelSpec
from tests.groups import encode_groups

MODEL = ModelSpec(name="two-nn", input_shape=(1, 28, 28), num_classes=10)
LARGEST = 512 * 3136 * 4  # bytes of `linear1.weight`: more than one block


class Watched(ComputedArrays):
    """Lazy arrays that record the largest block read."""

    def __init__(self, arrays: dict[str, AnyArray]) -> None:
        super().__init__({name: (array.dtype, array.shape) for name, array in arrays.items()}, self._rows)
        self._arrays, self.largest, self.bytes_read = arrays, 0, 0

    def _rows(self, name: str, start: int, stop: int) -> AnyArray:
        array = self._arrays[name]
        rows = array[start:stop] if array.ndim else array
        self.largest, self.bytes_read = max(self.largest, rows.nbytes), self.bytes_read + rows.nbytes
        return rows


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return build_model(MODEL)


def test_received_arrays_are_loaded_in_blocks(module):
    wanted = arrays_of(build_model(MODEL, seed=1))
    received = Watched(wanted)
    load_arrays(module, received)
    assert all(np.array_equal(array, wanted[name]) for name, array in arrays_of(module).items())
    assert received.largest <= 4 * BLOCK_NUMBERS < LARGEST
    assert received.bytes_read == sum(array.nbytes for array in wanted.values())


def test_an_answer_computed_in_blocks_equals_one_computed_at_once(module):
    started = arrays_of(build_model(MODEL, seed=2))
    received, trained = Watched(started), arrays_of(module)
    made = digest_of_tensors(FlatGroups({"model": trained_since(module, received)}))
    whole = {name: trained[name] - started[name] for name in trained}
    assert made == digest_of(encode_groups({"model": whole}))
    assert received.largest <= 4 * BLOCK_NUMBERS < LARGEST


def test_an_answer_sliced_in_blocks_equals_one_sliced_at_once(module, tmp_path: Path):
    spec, channel_map = SubModelSpec(kept={"conv2": 7}), trace_channels(module, MODEL.input_shape)
    arrays = {**arrays_of(module), "scores": np.arange(3, dtype=np.float32)}
    with (path := tmp_path / "kept").open("wb") as file:
        write_tensors(file, FlatGroups({"control": arrays}))
    cut = {**arrays, **extract(arrays_of(module), spec, channel_map)}
    lazy = in_sub_model(FileGroups(path), spec, channel_map)
    assert digest_of_tensors(FlatGroups(lazy)) == digest_of(encode_groups({"control": cut}))


def test_a_hollow_module_computes_with_borrowed_arrays(module):
    arrays = arrays_of(module)
    borrowing = hollow(module)
    borrow_arrays(borrowing, arrays)
    inputs = torch.ones(1, *MODEL.input_shape)
    assert torch.equal(borrowing.eval()(inputs), module.eval()(inputs))
    assert np.shares_memory(next(borrowing.parameters()).detach().numpy(), arrays["conv1.weight"])


def test_a_hollow_module_keeps_other_buffers():
    module = build_model(ModelSpec(name="resnet56", input_shape=(3, 8, 8), num_classes=2))
    channel_map = trace_channels(module, (3, 8, 8))
    whole = GlobalModel(module, ModelSpec(name="resnet56", input_shape=(3, 8, 8), num_classes=2), channel_map)
    arrays = arrays_of(module)
    borrowing = whole.sub_model(arrays, SubModelSpec())
    assert borrowing.state_dict().keys() == module.state_dict().keys()
    assert all(
        torch.equal(tensor, module.state_dict()[name]) for name, tensor in borrowing.state_dict().items()
    )
    # A forward pass may change statistics, so they are copies.
    statistics = dict(borrowing.named_buffers())["bn1.running_mean"].numpy()
    assert not np.shares_memory(statistics, arrays["bn1.running_mean"])
