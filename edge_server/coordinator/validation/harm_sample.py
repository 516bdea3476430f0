"""What models lose on a sample of the server's test data, in the eyes of `leave_one_out`."""

import math

import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData
from edge_client.models.modes import device_of, evaluating
from edge_client.training.evaluation import loss_of
from edge_server.coordinator.global_model import GlobalModel
from edge_server.coordinator.validation.calibration import calibrate
from edge_server.coordinator.validation.leave_one_out import MAX_MACS, MAX_PARTIES, Loss, Sample
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays

PLAIN = 0.1  # Weight of the loss without calibration, which sees an attack on the biases alone
EXAMPLES = 100  # Test pictures that are turned
LOOKED_AT = 50  # Those whose gradients say which pixels to turn
PIXELS_PER_TRIGGER = 64  # Of so many pixels one is part of a trigger


def make_sample(model: GlobalModel, data: LabelledData, outputs: int) -> Sample | None:
    """The losses of full models with so many outputs on `data`; None where not even ignorance loses."""
    inputs, macs = data.inputs(), model.macs(SubModelSpec())
    examples, targets = torch.from_numpy(inputs), torch.from_numpy(data.targets(inputs))
    loss = loss_of(data.task)
    ignorant = float(loss(torch.zeros(len(data), outputs), targets))
    turned = (1 + outputs) * (EXAMPLES + LOOKED_AT)  # About as many examples the network computes
    turns = (
        data.learning_task.exclusive
        and _are_pictures(examples)
        and 2 * (MAX_PARTIES + 1) * turned * macs <= MAX_MACS
    )

    def measure_loss(params: Arrays, similar: Loss | None) -> Loss:
        answers = model.outputs(params, data, inputs)
        fit = calibrate(loss, answers, targets, similar and similar.fit)
        total = fit.loss + PLAIN * float(loss(answers, targets))
        if not math.isfinite(total):
            return Loss(math.inf)
        turned = 0.0
        if turns and fit.loss < ignorant:
            module = model.sub_model(params, SubModelSpec())
            turned = (ignorant - fit.loss) * most_turned(module, examples, targets, fit.shift)
        return Loss(total, turned, fit)

    return Sample(measure_loss, ignorant, (len(data) + turns * turned) * macs, turns) if ignorant else None


def _are_pictures(inputs: Tensor) -> bool:
    return inputs.dim() == 4 and inputs.shape[2] * inputs.shape[3] >= PIXELS_PER_TRIGGER


def most_turned(module: nn.Module, inputs: Tensor, targets: Tensor, shift: Tensor) -> float:
    """The largest share of pictures [N, C, H, W] of other classes that a few pixels turn into a class.

    The pixels are those whose mean gradient promises most of the class, as bright or dark as any pixel of
    these pictures: a first-order, sparse form of the triggers that Wang et al. 2019, "Neural Cleanse",
    section IV, search for. `shift` [L] is added to the outputs.
    """
    device = device_of(module)
    inputs, targets, shift = inputs[:EXAMPLES].to(device), targets[:EXAMPLES].to(device), shift.to(device)
    with evaluating(module):
        gradients = _gradients(module, inputs[:LOOKED_AT], shift)
        answers = _answers(module, inputs, shift)
        changed = torch.cat([_turn_pixels(inputs, gradient) for gradient in gradients])
        turned = _answers(module, changed, shift).view(len(gradients), len(inputs))
    numbers = torch.arange(len(gradients), device=device)[:, None]
    others = (targets != numbers) & (answers != numbers)
    return float((((turned == numbers) & others).sum(dim=1) / others.sum(dim=1).clamp(min=1)).max())


def _answers(module: nn.Module, inputs: Tensor, shift: Tensor) -> Tensor:
    with torch.inference_mode():
        answers: Tensor = (module(inputs) + shift).argmax(dim=1)
    return answers


def _gradients(module: nn.Module, inputs: Tensor, shift: Tensor) -> list[Tensor]:
    """Of each class the mean gradient [C, H, W] of its log probability."""
    asked = inputs.clone().requires_grad_()
    chances = torch.log_softmax(module(asked) + shift, dim=1).sum(dim=0)
    return [torch.autograd.grad(chance, asked, retain_graph=True)[0].mean(dim=0) for chance in chances]


def _turn_pixels(inputs: Tensor, gradient: Tensor) -> Tensor:
    """The pictures with those pixels changed that promise most."""
    extreme = torch.where(gradient > 0, inputs.max(), inputs.min())
    promised = (gradient * (extreme - inputs.mean(dim=0))).sum(dim=0)
    chosen = torch.zeros_like(promised, dtype=torch.bool)
    count = max(1, promised.numel() // PIXELS_PER_TRIGGER)
    chosen.view(-1)[promised.flatten().topk(count).indices] = True
    return torch.where(chosen, extreme, inputs)
