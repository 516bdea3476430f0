"""What models lose on a sample of the server's test data, in the eyes of `leave_one_out`."""

import math

import torch
from torch import Tensor

from edge_client.data.dataset import LabelledData
from edge_client.training.evaluation import logits
from edge_client.training.losses import loss_of
from edge_server.coordinator.global_model import GlobalModel
from edge_server.coordinator.validation.calibration import calibrate
from edge_server.coordinator.validation.leave_one_out import MOST_MACS, MOST_PARTIES, Loss, Sample
from edge_server.coordinator.validation.shortcuts import PIXELS_PER_TRIGGER, most_turned, turned_examples
from schemas.submodel import SubModelSpec
from schemas.tensors.blobs import Arrays

PLAIN = 0.1  # Weight of the loss without calibration, which sees an attack on the biases alone


def make_sample(model: GlobalModel, data: LabelledData, outputs: int) -> Sample | None:
    """The losses of full models with so many outputs on `data`; None where not even ignorance loses."""
    inputs, macs = data.inputs(), model.macs(SubModelSpec())
    examples, targets = torch.from_numpy(inputs), torch.from_numpy(data.targets(inputs))
    loss = loss_of(data.task)
    ignorant = float(loss(torch.zeros(len(data), outputs), targets))
    turned = turned_examples(outputs)
    turns = (
        data.learning_task.exclusive
        and _are_pictures(examples)
        and 2 * (MOST_PARTIES + 1) * turned * macs <= MOST_MACS
    )

    def lost(params: Arrays, similar: Loss | None) -> Loss:
        module = model.sub_model(params, SubModelSpec())
        answers = torch.from_numpy(logits(module, inputs))
        fit = calibrate(loss, answers, targets, similar and similar.fit)
        total = fit.loss + PLAIN * float(loss(answers, targets))
        if not math.isfinite(total):
            return Loss(math.inf)
        turned = 0.0
        if turns and fit.loss < ignorant:
            turned = (ignorant - fit.loss) * most_turned(module, examples, targets, fit.shift)
        return Loss(total, turned, fit)

    return Sample(lost, ignorant, (len(data) + turns * turned) * macs, turns) if ignorant else None


def _are_pictures(inputs: Tensor) -> bool:
    return inputs.dim() == 4 and inputs.shape[2] * inputs.shape[3] >= PIXELS_PER_TRIGGER
