"""Whether a network fits its classes and its recipe, before it is trained.

Imports torch: import it late.
"""

from collections.abc import Sequence

import torch
from torch import nn

from edge_client.data.dataset import LabelledData
from edge_client.data.tasks.registry import learning_task
from edge_client.models import build, fixed_state, modes, registry
from edge_client.pruning.channel_graph import ledger, trace
from edge_client.pruning.channel_selection import group_ratios
from edge_client.pruning.surgery import arrays_of
from edge_server.config.config import Config
from edge_server.config.test_data import model_spec, stated_classes, stated_columns
from edge_server.coordinator.initial_model import InitialModel
from edge_server.strategy.planning import measures_statistics
from edge_server.strategy.selection.policies import RATIOS
from edge_server.strategy.strategy import Network, Strategy
from schemas import statistics, values
from schemas.errors import ConfigError

MAX_STOPS = 4  # Operations that a notice names


def check_network(config: Config, data: LabelledData, first: InitialModel | None = None) -> None:
    """Build the network and feed it; raises `ConfigError` for a network that no run can begin with.

    `first` is the model that the run starts from, if any.
    """
    spec = model_spec(config, data)
    module = build.build_model(spec)
    drawn = fixed_state.drawn_state(spec, module)
    channel_map = trace.trace_channels(module, spec.input_shape)
    check_outputs(module, spec)
    if first is not None:
        first.check_columns(stated_columns(config, data, spec))
        names = stated_classes(config, data, spec.num_classes)
        first.read(spec, channel_map, arrays_of(module), names)
        first.read_fixed(drawn)


def check_outputs(module: nn.Module, spec: values.ModelSpec) -> None:
    """Feed the network batches; raises `ConfigError` unless it gives one score per class and example.

    Nor may it be a network of which nothing can be trained.
    """
    for examples in (2, 1, 7):
        outputs = _check_batch(module, spec, examples)
    if why := _untrainable(module, outputs):
        raise ConfigError(f"'{spec.name}' {why}", key="[model] name")


def _untrainable(module: nn.Module, outputs: torch.Tensor) -> str:
    """Why no training can change the outputs of a network; empty if one can."""
    parameters = list(module.parameters())
    if not parameters:
        return "has no parameters, so there is nothing to train: give it a layer that has some"
    if not any(parameter.requires_grad for parameter in parameters):
        return "is frozen, so there is nothing to train: leave requires_grad of some parameters True"
    if not outputs.requires_grad:
        return (
            "gives outputs without a gradient, so there is nothing to train: leave out detach(), .data and "
            "torch.no_grad() between its trained parameters and its outputs"
        )
    return ""


def _check_batch(module: nn.Module, spec: values.ModelSpec, examples: int) -> torch.Tensor:
    like = next(module.parameters(), torch.zeros(()))
    batch = torch.zeros(examples, *spec.input_shape, device=like.device)
    try:
        with modes.evaluating(module), torch.enable_grad():
            outputs = module(batch)
    except Exception as error:
        kind = str(like.dtype).removeprefix("torch.")
        why = (
            str(error)
            if kind == "float32"
            else f"its weights are {kind}, inputs are float32: end its factory with .float()"
        )
        raise ConfigError(
            f"'{spec.name}' fails with {_count_examples(examples)}: {why}", key="[model] name"
        ) from error
    if not isinstance(outputs, torch.Tensor):
        raise ConfigError(
            f"'{spec.name}' returns {type(outputs).__name__}", key="[model] name", remedy=_shape_remedy(spec)
        )
    if tuple(outputs.shape) != (examples, learning_task(spec.task).width(spec.num_classes, spec.input_shape)):
        lost = "; squeeze() loses the axis of a single example: use flatten(1)" if examples == 1 else ""
        raise ConfigError(
            f"'{spec.name}' returns {tuple(outputs.shape)} for {_count_examples(examples)} and "
            f"{spec.num_classes} classes",
            key="[model] name",
            remedy=f"{_shape_remedy(spec)}{lost}",
        )
    return outputs


def _shape_remedy(spec: values.ModelSpec) -> str:
    if registry.is_detector(spec.name):
        return 'set [model] task = "detection"'
    if learning_task(spec.task).labels == "boxes":
        return (
            f'set [model] name = "detector:{spec.name}", or return logits, corners and centre-ness of each '
            "cell, a tensor [batch, (num_classes + 5) * cells]"
        )
    return "return one score per class and example, a tensor [batch, num_classes]"


def _count_examples(examples: int) -> str:
    return "one example" if examples == 1 else f"{examples} examples"


def no_export(name: str, why: str) -> str:
    """What to say of a network that cannot become ONNX, which is the form in which devices use it."""
    return f"[model] name: '{name}' cannot become an ONNX file, which devices and tiers get: {why}"


def check_features(spec: values.ModelSpec) -> None:
    """Raise `ConfigError` for more features than a task can name."""
    features = max(
        spec.input_shape[0], spec.num_classes if learning_task(spec.task).labels == "numbers" else 0
    )
    if features > statistics.MAX_FEATURES:
        raise ConfigError(
            f"{features} features, and statistics are of at most {statistics.MAX_FEATURES}",
            key="[model] input-shape",
            remedy="shape the examples [channels, ...], or state [data.statistics]",
        )


def unpruned_notice(config: Config, network: Network) -> str | None:
    """The notice that a recipe prunes a network without prunable channels; None for any other.

    With ratios fixed by tier, all devices train the full model. Raises `ConfigError` for a recipe that learns
    its ratios, as there is nothing to learn.
    """
    learns = not _is_steady(config)
    if group_ratios(network.entry, 0.0, network.channel_map) or not _prunes(config):
        return None
    why = f"'{config.model.name}' has no channels that can be pruned"
    if learns:
        raise ConfigError(
            f"'{config.strategy.ratio.name}' learns how much to prune, and {why}",
            key="[strategy] ratio",
            remedy='set ratio = "by-tier", or name another network',
        )
    return f"{why}: devices of every tier train the full model"


def untraced_notice(config: Config, stops: Sequence[ledger.Stop]) -> str | None:
    """The notice of the operations in a user's network at which channels stay whole although tiers prune."""
    if not stops or registry.trunk_of(config.model.name) in registry.MODELS or not _prunes(config):
        return None
    more = [f"{len(stops) - MAX_STOPS} more"] if len(stops) > MAX_STOPS else []
    places = ", ".join([*(stop.operation for stop in stops[:MAX_STOPS]), *more])
    remedies = "; ".join(dict.fromkeys(stop.remedy for stop in stops[:MAX_STOPS]))
    if registry.is_library_network(registry.trunk_of(config.model.name)):
        remedies = "a table says which networks of torchvision and timm are cut as a whole (guide: data)"
    return (
        f"'{config.model.name}' keeps all channels at {places} on every tier, because they cannot be traced "
        f"there: {remedies}"
    )


def unscaled_notice(config: Config, spec: values.ModelSpec) -> str | None:
    """The notice that nothing scales the inputs of rows and signals; None where something does."""
    about = config.data
    is_scaled = about.source or about.statistics is not None or about.scaling == "federated"
    if is_scaled or config.federation.statistics or len(spec.input_shape) > 2:
        return None
    return (
        "without [data] source the server does not know the data, and inputs are divided by 255, as those of "
        'pictures: state [data] scaling = "federated", or [data.statistics]'
    )


def unmeasured_notice(config: Config, strategy: Strategy, network: Network) -> str | None:
    """The notice of the round that measures statistics, and of models before it; None if none does."""
    if not measures_statistics(strategy, network):
        return None
    last = "the last round" if config.federation.when == "at-once" else "each opening's last round"
    return (
        f"'{config.model.name}' has batch normalisation, and {last} measures its statistics for every tier: "
        "models of earlier rounds, and of a run that is ended earlier, have averaged ones, and test worse"
    )


def _prunes(config: Config) -> bool:
    return not _is_steady(config) or any(config.tiers.levels)


def _is_steady(config: Config) -> bool:
    return RATIOS.traits(config.strategy.ratio.name).is_steady
