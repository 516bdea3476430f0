"""Testing the global model: on which data, after which rounds, for which tiers."""

import logging
import math
from collections.abc import Callable, Mapping
from functools import cached_property

import torch
from torch import Tensor, nn

from edge_client.data.classes import numbers, shorten_names
from edge_client.data.columns import arrange_figures, in_columns
from edge_client.data.dataset import Inputs, LabelledData, sample
from edge_client.models.modes import device_of, evaluating
from edge_client.pruning.channel_selection import Ratio
from edge_client.training.evaluation import loss_of
from edge_client.training.loop import single_thread
from edge_client.training.results import Evaluation
from edge_server.config import test_data
from edge_server.config.config import Config
from edge_server.coordinator.global_model import GlobalModel
from edge_server.coordinator.validation import leave_one_out, round_review
from edge_server.coordinator.validation.calibration import calibrate
from edge_server.coordinator.validation.leave_one_out import MAX_MACS, MAX_PARTIES, Loss, Sample
from schemas.errors import ConfigError, format_count
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.values import Feature, Preprocessing

log = logging.getLogger(__name__)

GLANCE = 256  # Examples that show whether a model yields finite numbers at all


def is_due(number: int, *, every: int, last: int) -> bool:
    """Whether a model is tested after round `number`: after every `every` rounds and after the `last`."""
    return number == last or number % every == 0


def distinct(tiers: Mapping[int, SubModelSpec]) -> dict[int, SubModelSpec]:
    """Each sub-model once, under its first tier."""
    first: dict[str, int] = {}
    for tier, spec in tiers.items():
        first.setdefault(spec.model_dump_json(), tier)
    return {tier: tiers[tier] for tier in first.values()}


def by_tier(tiers: Mapping[int, SubModelSpec], found: Mapping[int, Evaluation]) -> dict[int, Evaluation]:
    """Every tier's evaluation, from those of the `distinct` sub-models."""
    by_spec = {tiers[tier].model_dump_json(): evaluation for tier, evaluation in found.items()}
    return {tier: by_spec[spec.model_dump_json()] for tier, spec in tiers.items()}


class Testing:
    """The server's own test data, if any, and tests on it.

    `classes` and `columns` are the federation's lists; empty until they are known. The configured data is
    loaded unless `data` is given.
    """

    def __init__(
        self,
        config: Config,
        data: LabelledData | None = None,
        *,
        classes: tuple[str, ...] = (),
        columns: tuple[Feature, ...] = (),
    ) -> None:
        self._config = config
        data = test_data.load_test_data(config) if data is None else data
        self.model_spec = test_data.model_spec(config, data)
        self.classes = classes or test_data.stated_classes(config, data, self.model_spec.num_classes)
        self.columns = columns or test_data.stated_columns(config, data, self.model_spec)
        about = Preprocessing(columns=self.columns, picture_scale=config.data.common_scale)
        self._unseen = test_data.as_stated(about, config.data, self.model_spec)
        listed = self.classes or numbers(self.model_spec.num_classes)
        self.data = (
            None if data is None else test_data.as_the_federation(data, self.model_spec, listed, self.columns)
        )
        self._inputs: Inputs | None = None
        named = self.data if self.data is not None and self.data.learning_task.exclusive else None
        name = named.only_class if named is not None else None
        if name is not None:
            log.warning("%s of one class, '%s': any model that answers it is right", self.tested_on, name)

    def agree(self, classes: tuple[str, ...], columns: tuple[Feature, ...] = ()) -> None:
        """Take the lists that devices have agreed on."""
        if self.data is not None and classes not in (self.classes, self.data.class_names):
            log.warning(
                "the labels of [data] source have no names and are taken as places in the list %s; "
                "[data] classes states another one",
                shorten_names(classes),
            )
        self.classes = classes
        if columns:
            self._unseen = arrange_figures(self._unseen, columns) if self.columns else self._unseen
            self.data = None if self.data is None else in_columns(self.data, columns)
            self.columns = columns

    @property
    def preprocessing(self) -> Preprocessing:
        """How pixels become inputs, with the names of columns and classes once they are known."""
        own = self.data.preprocessing if self.data else self._unseen
        return own.model_copy(update={"class_names": self.classes, "columns": self.columns})

    @property
    def tested_on(self) -> str:
        """The number of examples and their source, in words; empty without test data."""
        if self.data is None:
            return ""
        return f"tested on {format_count(len(self.data), 'example')} of {self._config.data.source}"

    def due(self, number: int, tier_spec: Callable[[Ratio], SubModelSpec]) -> dict[int, SubModelSpec]:
        """The sub-models to test after round `number`, the full model as tier 0; none without data."""
        settings = self._config.federation
        if self.data is None or not is_due(number, every=settings.evaluate_every, last=settings.last_round):
            return {}
        tiers_due = is_due(number, every=settings.evaluate_tiers_every, last=settings.last_round)
        ratios = self._config.tiers.ratios if tiers_due else ()
        return {0: SubModelSpec(), **{n: tier_spec(ratio) for n, ratio in enumerate(ratios, start=1)}}

    def test(
        self,
        model: GlobalModel,
        specs: Mapping[int, SubModelSpec],
        params_of: Callable[[SubModelSpec], Arrays],
    ) -> dict[int, Evaluation]:
        """Test sub-models; `params_of` gives the full arrays that a sub-model is cut from."""
        assert self.data is not None
        if self._inputs is None:
            self._inputs = self.data.inputs()
        return model.test_all(specs, lambda number: params_of(specs[number]), self.data, self._inputs)

    def glance(self, model: GlobalModel, params: Arrays) -> Evaluation:
        """The full model on the first `GLANCE` examples."""
        assert self.data is not None
        with single_thread():
            return model.test(params, SubModelSpec(), self._first)

    def macs(self, model: GlobalModel) -> int:
        """Multiply-accumulates of a test of the full model."""
        return 0 if self.data is None else len(self.data) * model.macs(SubModelSpec())

    def canary(self, model: GlobalModel) -> round_review.Canary | None:
        """The canary, which tests on a sample of the test data; None if it is off."""
        allowed = self._config.firewall.canary
        if allowed is None:
            return None
        if self.data is None:
            raise ConfigError(
                "[firewall] canary needs test data of the server",
                remedy="set [data] source, or leave canary out",
            )

        def test(params: Arrays, spec: SubModelSpec) -> Mapping[str, float]:
            return model.test(params, spec, self._few).metrics

        return round_review.Canary(test, self.data.learning_task, allowed)

    @property
    def is_sampled(self) -> bool:
        """Whether updates can be compared on test data.

        A detector's cannot: what calibrates a loss are biases of outputs, and it has one in every cell.
        """
        return self.data is not None and not self.data.has_boxes

    def sample(self, model: GlobalModel) -> leave_one_out.Sample | None:
        """What a model loses on a sample of the test data, if `is_sampled`; once devices have agreed."""
        return make_sample(model, self._few, self.model_spec.num_classes)

    @cached_property
    def _first(self) -> LabelledData:
        """The examples of a glance, taken once devices have agreed on classes and columns."""
        assert self.data is not None
        return self.data.subset(range(min(GLANCE, len(self.data))))

    @cached_property
    def _few(self) -> LabelledData:
        """The sample that updates are tried on, taken once devices have agreed on classes and columns."""
        assert self.data is not None
        return sample(self.data, min(round_review.SAMPLES, len(self.data)))


PLAIN = 0.1  # Weight of the loss without calibration, up to that of ignorance: sees an attack on biases alone
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
        total = fit.loss + PLAIN * min(ignorant, float(loss(answers, targets)))
        if not math.isfinite(total):
            return Loss(math.inf)
        turned = 0.0
        if turns and fit.loss < ignorant:
            module = model.sub_model(params, SubModelSpec())
            turned = (ignorant - fit.loss) * most_turned(module, examples, targets, fit.apply)
        return Loss(total, turned, fit)

    return Sample(measure_loss, ignorant, (len(data) + turns * turned) * macs, turns) if ignorant else None


def _are_pictures(inputs: Tensor) -> bool:
    return inputs.dim() == 4 and inputs.shape[2] * inputs.shape[3] >= PIXELS_PER_TRIGGER


def most_turned(
    module: nn.Module, inputs: Tensor, targets: Tensor, calibrated: Callable[[Tensor], Tensor]
) -> float:
    """The largest share of pictures [N, C, H, W] of other classes that a few pixels turn into a class.

    The pixels are those whose mean gradient promises most of the class, as bright or dark as any pixel of
    these pictures: a first-order, sparse form of the triggers that Wang et al. 2019, "Neural Cleanse",
    section IV, search for. Answers are those of the `calibrated` outputs [N, L].
    """
    device = device_of(module)
    inputs, targets = inputs[:EXAMPLES].to(device), targets[:EXAMPLES].to(device)
    with evaluating(module):
        gradients = _gradients(module, inputs[:LOOKED_AT], calibrated)
        answers = _answers(module, inputs, calibrated)
        changed = torch.cat([_turn_pixels(inputs, gradient) for gradient in gradients])
        turned = _answers(module, changed, calibrated).view(len(gradients), len(inputs))
    numbers = torch.arange(len(gradients), device=device)[:, None]
    others = (targets != numbers) & (answers != numbers)
    return float((((turned == numbers) & others).sum(dim=1) / others.sum(dim=1).clamp(min=1)).max())


def _answers(module: nn.Module, inputs: Tensor, calibrated: Callable[[Tensor], Tensor]) -> Tensor:
    with torch.inference_mode():
        return calibrated(module(inputs)).argmax(dim=1)


def _gradients(module: nn.Module, inputs: Tensor, calibrated: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Of each class the mean gradient [C, H, W] of its log probability."""
    asked = inputs.clone().requires_grad_()
    chances = torch.log_softmax(calibrated(module(asked)), dim=1).sum(dim=0)
    return [torch.autograd.grad(chance, asked, retain_graph=True)[0].mean(dim=0) for chance in chances]


def _turn_pixels(inputs: Tensor, gradient: Tensor) -> Tensor:
    """The pictures with those pixels changed that promise most."""
    extreme = torch.where(gradient > 0, inputs.max(), inputs.min())
    promised = (gradient * (extreme - inputs.mean(dim=0))).sum(dim=0)
    chosen = torch.zeros_like(promised, dtype=torch.bool)
    count = max(1, promised.numel() // PIXELS_PER_TRIGGER)
    chosen.view(-1)[promised.flatten().topk(count).indices] = True
    return torch.where(chosen, extreme, inputs)
