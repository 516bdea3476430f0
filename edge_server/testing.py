"""What the server tests its model on, when, and in which tiers' shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge_client.data.labelled import LabelledData, sample
from edge_client.data.sources import load_source
from edge_client.evaluation import Evaluation
from edge_client.pruning import Ratio
from edge_server.config import Config
from edge_server.evaluation import GlobalModel
from edge_server.firewall.canary import SAMPLES, Accuracy
from edge_server.settings import FederationSettings
from schemas.blobs import Arrays
from schemas.errors import ConfigError
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec, Preprocessing


def load_test_data(config: Config) -> LabelledData | None:
    """The examples that the file names, or as many of them as it says; none where it names no source."""
    if config.data.source is None:
        return None
    data = load_source(config.data.source, data_root=config.data.data_root, split="test")
    return data if config.data.test_samples is None else sample(data, config.data.test_samples)


def model_spec(config: Config, data: LabelledData | None) -> ModelSpec:
    """The network's shape and classes: the file's, else the data's; raises `ConfigError` without both."""
    shape = config.model.input_shape or (data.input_shape if data else None)
    classes = config.model.num_classes or (data.num_classes if data else None)
    if shape is None or classes is None:
        raise ConfigError("[model] input-shape and num-classes are needed where [data] names no source")
    return ModelSpec(name=config.model.name, input_shape=shape, num_classes=classes)


def is_due(settings: FederationSettings, number: int) -> bool:
    """Whether the full model is tested after round `number`."""
    return number == settings.rounds or number % settings.evaluate_every == 0


def tiers_are_due(settings: FederationSettings, number: int) -> bool:
    """Whether, in a round that is tested, every tier's sub-model is too."""
    return number == settings.rounds or number % settings.evaluate_tiers_every == 0


def evaluate_tiers(
    tiers: Mapping[int, SubModelSpec], test: Callable[[SubModelSpec], Evaluation]
) -> dict[int, Evaluation]:
    """Test the full model (as tier 0) and these tiers'; sub-models that are alike are tested once."""
    specs = {0: SubModelSpec(), **tiers}
    keys = {tier: spec.model_dump_json() for tier, spec in specs.items()}
    by_spec: dict[str, Evaluation] = {}
    for tier, spec in specs.items():
        if keys[tier] not in by_spec:
            by_spec[keys[tier]] = test(spec)
    return {tier: by_spec[key] for tier, key in keys.items()}


class Testing:
    """The server's own test data, if it has any, and what its model comes to on them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._data = load_test_data(config)
        self._inputs = self._data.inputs() if self._data else None
        self.preprocessing = self._data.preprocessing if self._data else Preprocessing()
        self.model_spec = model_spec(config, self._data)

    def tested(
        self, number: int, model: GlobalModel, params: Arrays, tier_spec: Callable[[Ratio], SubModelSpec]
    ) -> dict[int, Evaluation]:
        """Test the full model (as tier 0) and every tier's; empty without data, or where it is not time."""
        settings, data = self._config.federation, self._data
        if data is None or not is_due(settings, number):
            return {}
        ratios = self._config.tiers.ratios if tiers_are_due(settings, number) else ()
        return evaluate_tiers(
            {tier: tier_spec(ratio) for tier, ratio in enumerate(ratios, start=1)},
            lambda spec: model.test(params, spec, data, self._inputs),
        )

    def canary(self, model: GlobalModel) -> Accuracy | None:
        """What the canary asks: a sub-model's accuracy on some test data; none where it is off."""
        if self._config.firewall.canary is None:
            return None
        if self._data is None:
            raise ConfigError(
                "[firewall] canary needs test data of the server: set [data] source, or leave canary out"
            )
        data = sample(self._data, min(SAMPLES, len(self._data)))

        def accuracy(params: Arrays, spec: SubModelSpec) -> float | None:
            return model.test(params, spec, data).accuracy

        return accuracy
