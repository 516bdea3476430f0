"""Attention in step graphs, which are compared with torch as they are drawn."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.training.step_graphs.drawing.step import draw_step
from tests.slow import slow

SHAPE = (5, 12)


class Attending(nn.Module):
    def __init__(self, attend) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.head, self.attend = nn.Linear(12, 3), attend

    def forward(self, x: Tensor) -> Tensor:
        layers = (self.query, self.key, self.value)
        heads = (layer(x).unflatten(2, (-1, 4)).transpose(1, 2) for layer in layers)
        return self.head(self.attend(*heads).transpose(1, 2).flatten(2).mean(1))


FORMS = {
    "plain": {},
    "causal": {"is_causal": True},
    "a scale": {"scale": 0.3},
    "a mask that is added": {"attn_mask": torch.linspace(-1, 1, 25).reshape(5, 5)},
    "a mask of places": {"attn_mask": torch.eye(5, dtype=torch.bool).logical_not()},
}


QUICK = ("plain", "a mask that is added")


@pytest.mark.parametrize("form", [form if form in QUICK else slow(form) for form in FORMS])
def test_a_step_with_scaled_dot_product_attention_is_torchs(form: str) -> None:
    torch.manual_seed(0)
    attend = functional.scaled_dot_product_attention
    assert draw_step(Attending(lambda q, k, v: attend(q, k, v, **FORMS[form])), SHAPE)


class Layered(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x, x, x)[0] if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return self.head(x.mean(1))


@pytest.mark.parametrize("kind", ["layer of an encoder", slow("attention")])
def test_a_step_with_torchs_layers_of_attention_is_torchs(kind: str) -> None:
    torch.manual_seed(0)
    layer = (
        nn.TransformerEncoderLayer(12, 3, 16, dropout=0.0, batch_first=True)
        if kind == "layer of an encoder"
        else nn.MultiheadAttention(12, 3, batch_first=True)
    )
    assert draw_step(Layered(layer), SHAPE)
