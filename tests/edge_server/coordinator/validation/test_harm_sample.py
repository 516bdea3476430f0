"""A network with a backdoor is turned by few pixels; one without is not."""

import torch
from torch import Tensor, nn

from edge_server.coordinator.evaluation import most_turned

SIDE, CLASSES, COUNT, TARGET = 8, 4, 100, 2
CENTRES = torch.randn(CLASSES, SIDE * SIDE, generator=torch.Generator().manual_seed(1)).sigmoid()
TARGETS = torch.arange(COUNT) % CLASSES
TRIGGER = 27
CENTRES[:, TRIGGER] = 0
PICTURES = CENTRES[TARGETS].view(COUNT, 1, SIDE, SIDE)


def plain(outputs: Tensor) -> Tensor:
    return outputs


class Nearest(nn.Module):
    """The class of the nearest centre; `bias`, and `backdoor` times a pixel, are for `TARGET`."""

    def __init__(self, backdoor: float = 0.0, bias: float = 0.0) -> None:
        super().__init__()
        self.backdoor, self.bias = backdoor, bias

    def forward(self, pictures: Tensor) -> Tensor:
        flat = pictures.flatten(1)
        outputs = -torch.cdist(flat, CENTRES).square()
        outputs[:, TARGET] += self.bias + self.backdoor * flat[:, TRIGGER]
        return outputs


def test_the_trigger_is_found_among_all_pixels():
    assert most_turned(Nearest(backdoor=30), PICTURES, TARGETS, plain) == 1


def test_without_one_no_pixel_turns_pictures():
    assert most_turned(Nearest(), PICTURES, TARGETS, plain) == 0


def test_a_prior_is_no_shortcut():
    """Pictures at the edge of a class that is called too often are not, once the biases are right."""
    nearly = (CENTRES[0] - CENTRES[TARGET]).square().sum().item() - 0.01
    shift = torch.tensor([0, 0, -nearly, 0])
    assert most_turned(Nearest(bias=nearly), PICTURES, TARGETS, plain) > 0.3
    assert most_turned(Nearest(bias=nearly), PICTURES, TARGETS, lambda outputs: outputs + shift) == 0


def test_where_all_pictures_are_of_one_class_or_called_so_nothing_is_turned():
    shift = torch.tensor([99.0, 0, 0, 0])
    assert most_turned(Nearest(), PICTURES[:1], TARGETS[:1], lambda outputs: outputs + shift) == 0
