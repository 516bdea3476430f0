"""Step graphs compute torch's loss and gradients, whatever the batch."""

import copy
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.models.graphs.checks import check_graph
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing import step
from edge_client.training.step_graphs.drawing.export import DrawingRefused
from edge_client.training.step_graphs.drawing.step import draw_step
from schemas.strategy import Component
from tests.edge_client.networks import Net
from tests.slow import slow

SHAPE = (2, 9, 9)


class Various(nn.Module):
    """Grouped, depth-wise, strided and dilated convolutions, poolings, both normalisations, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.grouped = nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=4)
        self.batch = nn.BatchNorm2d(12)
        self.depth_wise = nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)
        self.dropout = nn.Dropout(0.25)
        self.last = nn.Linear(12 * 2 * 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu6(self.norm(self.first(x)))
        x = functional.max_pool2d(functional.relu(self.batch(self.grouped(x))), 3, stride=2, padding=1)
        x = functional.avg_pool2d(self.depth_wise(x), 2, stride=1)
        return self.last(self.dropout(torch.flatten(x, 1)))  # type: ignore[no-any-return]


def module() -> Various:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Various()


@pytest.fixture(scope="module")
def drawn() -> bytes:
    return draw_step(module(), SHAPE)


def run(graph: bytes, given: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    outputs = [value.name for value in session.get_outputs()]
    return dict(zip(outputs, session.run(None, given), strict=True))


@pytest.mark.parametrize("examples", [2, slow(3), slow(7), 20])
def test_gradients_statistics_and_loss_are_torchs(drawn: bytes, examples: int) -> None:
    network, random = module(), torch.Generator().manual_seed(examples)
    inputs = torch.randn(examples, *SHAPE, generator=random)
    labels = torch.randint(3, (examples,), generator=random)
    mask = (torch.rand(examples, 48, generator=random) > 0.25).float() / 0.75
    given = {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
    del given["batch.num_batches_tracked"]
    outputs = run(
        drawn,
        {
            **given,
            names.INPUTS: inputs.numpy(),
            names.LABELS: labels.numpy(),
            "dropout/dropout": mask.numpy(),
        },
    )
    network.dropout.register_forward_hook(lambda _, fed, out: fed[0] * mask)
    loss = functional.cross_entropy(network(inputs), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    assert outputs[names.LOSS] == pytest.approx(loss.item(), rel=1e-5)
    whole = max(float(weight.grad.norm()) for weight in network.parameters() if weight.grad is not None)
    for name, weight in network.named_parameters():
        assert weight.grad is not None
        difference = np.linalg.norm(outputs[names.GRADIENT + name] - weight.grad.numpy())
        assert difference <= 1e-4 * max(float(weight.grad.norm()), 1e-3 * whole), name
    for name in ("batch.running_mean", "batch.running_var"):
        assert np.allclose(outputs[names.NEXT + name], network.state_dict()[name].numpy(), rtol=1e-5)


def test_a_shift_that_a_normalisation_takes_away_has_a_gradient_of_rounding_alone() -> None:
    # As in MobileNetV2: the normalisation of a bottleneck, whose shift the next one takes away with the mean.
    torch.manual_seed(0)
    bottleneck = (nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Conv2d(6, 6, 1, bias=False))
    network = nn.Sequential(*bottleneck, nn.BatchNorm2d(6), nn.ReLU6(), nn.Flatten(), nn.Linear(96, 3))
    inputs, labels = torch.randn(16, 3, 6, 6), torch.randint(3, (16,))
    state = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
    given = {name: array.copy() for name, array in state.items() if "tracked" not in name}
    found = run(
        draw_step(network, (3, 6, 6)), {**given, names.INPUTS: inputs.numpy(), names.LABELS: labels.numpy()}
    )
    gradients = []
    for precise in (copy.deepcopy(network).double(), network):
        precise.zero_grad()
        fed = inputs.to(next(precise.parameters()).dtype)
        functional.cross_entropy(precise(fed), labels).backward()  # type: ignore[no-untyped-call]
        gradients.append(
            {n: w.grad.double().numpy() for n, w in precise.named_parameters() if w.grad is not None}
        )
    exact, rounded = gradients
    whole = max(float(np.linalg.norm(gradient)) for gradient in exact.values())
    assert np.linalg.norm(exact["1.bias"]) < 1e-14 * whole
    # Of it no two computations agree: a bound for it is one of the largest gradient.
    for gradient in (rounded["1.bias"], found[f"{names.GRADIENT}1.bias"]):
        assert np.linalg.norm(gradient) < 1e-6 * whole
    for name, gradient in exact.items():
        if name != "1.bias":
            difference = np.linalg.norm(found[names.GRADIENT + name] - gradient)
            assert difference < 1e-5 * np.linalg.norm(gradient), name


def test_equal_networks_give_equal_bytes_whatever_their_weights(drawn: bytes) -> None:
    other = module()
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1.5)
    assert draw_step(other, SHAPE) == drawn


def test_a_drawn_graph_passes_a_devices_checks(drawn: bytes) -> None:
    model = check_graph(drawn, max_bytes=10**6, max_nodes=5000)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata[names.SMALLEST_BATCH] == "2"
    assert metadata[names.DROPOUTS] == '{"dropout/dropout": 0.25}'
    assert float(metadata[names.BYTES_PER_EXAMPLE]) > 4 * 2 * 81


def test_random_numbers_inside_a_step_are_refused() -> None:
    noisy = Net(lambda net, x: net.layer(x + torch.rand_like(x)), layer=nn.Linear(4, 3))
    with pytest.raises(DrawingRefused, match="random numbers"):
        draw_step(noisy, (4,))


def test_a_network_that_decides_by_its_data_is_refused() -> None:
    deciding = Net(lambda net, x: net.layer(x) * (2 if x.sum() > 0 else 1), layer=nn.Linear(4, 3))
    with pytest.raises(DrawingRefused, match="Net cannot be drawn"):
        draw_step(deciding, (4,))


def test_the_masked_loss_is_part_of_the_graph() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.Sequential(nn.Linear(4, 3))
    graph = draw_step(layer, (4,), [Component(name="masked-loss")])
    inputs, labels = (
        torch.randn(5, 4, generator=torch.Generator().manual_seed(1)),
        torch.tensor([0, 2, 0, 2, 2]),
    )
    given = {name: tensor.detach().numpy() for name, tensor in layer.state_dict().items()}
    known = np.array([True, False, True])
    batch = {names.INPUTS: inputs.numpy(), names.LABELS: labels.numpy(), names.KNOWN: known}
    outputs = run(graph, {**given, **batch})
    # The output of the unknown class does not reach the loss.
    assert not outputs[f"{names.GRADIENT}0.weight"][1].any()
    assert outputs[f"{names.GRADIENT}0.weight"][0].any()


def test_a_graph_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(graph: Any) -> None:
        next(node for node in graph.node if node.op_type == "Relu").op_type = "Sigmoid"

    monkeypatch.setattr(step, "fuse_transposes", spoil)
    with pytest.raises(DrawingRefused, match="differs from torch"):
        draw_step(nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)), (2, 2, 2))


def test_one_batch_of_a_size_may_differ_by_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter(["'loss' differs from torch by 1", None, None])
    monkeypatch.setattr(step, "find_difference", lambda *_: next(found))
    draw_step(nn.Sequential(nn.Flatten(), nn.Linear(8, 3)), (2, 2, 2))
    assert next(found, "none left") == "none left"


class Enlarged(nn.Module):
    """Maps that are enlarged by whole factors, and added to larger ones."""

    def __init__(self, scale: float | tuple[float, float]) -> None:
        super().__init__()
        self.first, self.second, self.scale = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 1), scale

    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(
            self.second(torch.relu(self.first(x))), scale_factor=self.scale
        ).flatten(1)


def test_a_step_of_maps_that_are_enlarged_can_be_drawn():
    # It is compared with torch before it is returned.
    assert draw_step(Enlarged((2.0, 3.0)), (2, 4, 4))
    with pytest.raises(DrawingRefused, match="factors that are not whole"):
        draw_step(Enlarged(1.5), (2, 4, 4))
