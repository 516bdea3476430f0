"""Every shipped network by name, with its factory and prunable channels; imports no torch."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from edge_client.system.plugins import Registry
from schemas.errors import ConfigError, nearest

# Checks of a factory's input shape.


def image_shape(input_shape: tuple[int, ...], *, least: int = 1) -> tuple[int, int, int]:
    """The colours, height and width of an image; `ValueError` unless both sides have `least` pixels."""
    if len(input_shape) != 3 or min(input_shape[1:]) < least:
        raise ValueError(f"expected images of (colours, height, width) with sides of {least} or more")
    channels, height, width = input_shape
    return channels, height, width


# The inputs that a network was trained on; imports no torch.


@dataclass(frozen=True)
class InputRecord:
    """What a weights file, or the library that publishes it, states of a network's pictures.

    `size`: height and width in pixels. `mean` and `std`: one per colour, of pixels between 0 and 1; empty if
    nothing is stated. `crop`: the share of a resized picture's side that is cut out of its middle, between 0
    and 1. `interpolation`: how a picture is resized, "bilinear" or "bicubic".
    """

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop: float | None = None
    interpolation: str | None = None


@dataclass(frozen=True)
class ModelEntry:
    """One network: `factory` is `package.module:callable(input_shape, num_classes)`.

    `targets` are globs of the layers whose channels may be pruned; `stage_ratios` has the ratio of each glob
    for pruning ratios that a paper spreads unevenly. Every pruned group keeps a `multiple` of channels; 1 is
    the papers' exact count. With `pictures` only inputs [channels, height, width] are possible. An input of
    `example_shape`, with `example_outputs`, is one that the network takes; `rate` is the sampling rate in Hz
    of the recordings that it is for. A network that `flattens` its input takes any axes alike.
    """

    factory: str
    summary: str
    targets: tuple[str, ...] = ("*",)
    stage_ratios: Mapping[float, Mapping[str, float]] = field(default_factory=dict)
    multiple: int = 1
    pictures: bool = False
    example_shape: tuple[int, ...] = (3, 32, 32)
    example_outputs: int = 10
    rate: float | None = None
    flattens: bool = False

    @property
    def asks(self) -> bool:
        """Whether inputs [A, B] may be pictures or signals to it."""
        return not (self.pictures or self.flattens or len(self.example_shape) < 3)


def _stages(first: float, second: float, third: float) -> Mapping[str, float]:
    return {"layer1.*": first, "layer2.*": second, "layer3.*": third}


MODELS: Registry[ModelEntry] = Registry(
    "network",
    {
        "two-nn": ModelEntry(
            factory="edge_client.models.cnn:TwoNN",
            summary="two 5x5 convolutions and a hidden layer, 1.7M parameters (ATTENDING, table 5)",
            targets=("conv2",),
            pictures=True,
        ),
        "mlp": ModelEntry(
            factory="edge_client.models.cnn:MLP",
            summary="two hidden layers of 200, 0.2M parameters (McMahan et al. 2017; AdaFL on MNIST)",
            flattens=True,
        ),
        "cnn-1d": ModelEntry(
            factory="edge_client.models.cnn_1d:CNN1D",
            summary="two convolutions along time and a hidden layer, for signals (after Wang et al. 2017)",
            example_shape=(3, 64),
        ),
        "tcn": ModelEntry(
            factory="edge_client.models.tcn:TCN",
            summary="causal convolutions that see 31 steps, for series and forecasts (Bai et al. 2018)",
            example_shape=(3, 64),
        ),
        "speech-cnn": ModelEntry(
            factory="edge_client.models.speech_cnn:SpeechCNN",
            summary="log-mel spectra of raw recordings, two convolutions and a hidden layer",
            example_shape=(1, 4096),
            rate=8000.0,
        ),
        "autoencoder": ModelEntry(
            factory="edge_client.models.autoencoder:Autoencoder",
            summary="repeats rows and small signals through a narrow layer, for anomalies",
            targets=("encode1", "decode1"),
            example_shape=(12,),
            example_outputs=12,
        ),
        "cnn": ModelEntry(
            factory="edge_client.models.cnn:CNN",
            summary="two convolutions and two hidden layers, 1.8M parameters on CIFAR (McMahan et al. 2017)",
            pictures=True,
        ),
        "cnn-batch": ModelEntry(
            factory="edge_client.models.cnn:cnn_batch",
            summary="`cnn` with batch normalisation behind each convolution (Ioffe and Szegedy 2015)",
            pictures=True,
        ),
        "cnn-group": ModelEntry(
            factory="edge_client.models.cnn:cnn_group",
            summary="`cnn` with group normalisation behind each convolution, 32 groups (Wu and He 2018)",
            pictures=True,
        ),
        "resnet20": ModelEntry(
            factory="edge_client.models.resnet:resnet20",
            summary="CIFAR ResNet of twenty layers, 0.3M parameters (He et al. 2016, section 4.2)",
            targets=("layer*",),
            pictures=True,
        ),
        "resnet20-group": ModelEntry(
            factory="edge_client.models.resnet:resnet20_group",
            summary="`resnet20` with group normalisation, two channels per group (Wu and He 2018)",
            targets=("layer*",),
            pictures=True,
        ),
        "resnet56": ModelEntry(
            factory="edge_client.models.resnet:resnet56",
            summary="CIFAR bottleneck ResNet, 0.6M parameters (ATTENDING, table 6; FedML)",
            targets=("layer*",),
            # Appendix H: strategies "226", "133", "012" and "120".
            stage_ratios={
                0.7: _stages(0.2, 0.2, 0.6),
                0.5: _stages(0.1, 0.3, 0.3),
                0.3: _stages(0.0, 0.1, 0.2),
                0.1: _stages(0.1, 0.2, 0.0),
            },
            pictures=True,
        ),
        "vit-tiny": ModelEntry(
            factory="edge_client.models.vit_tiny:ViTTiny",
            summary="transformer encoder of four blocks and heads, 0.1M parameters (Dosovitskiy et al. 2021)",
            targets=("blocks.*",),
        ),
        "mobilenet-v2": ModelEntry(
            factory="edge_client.models.mobilenet_v2:mobilenet_v2",
            summary="torchvision's MobileNetV2, 2.2M parameters at 10 classes",
            targets=("features.*",),
            pictures=True,
        ),
        "mobilenet-v2-quarter": ModelEntry(
            factory="edge_client.models.mobilenet_v2:mobilenet_v2_quarter",
            summary="MobileNetV2 of a quarter of the width, for processors",
            targets=("features.*",),
            pictures=True,
        ),
    },
)


def is_ours(name: str) -> bool:
    """Whether a network is one of this package's own, which its tests have drawn and trained."""
    return entry(name).factory.startswith("edge_client.models.")


def entry(name: str) -> ModelEntry:
    """The entry of a shipped network, or a new one for a library's or a user's `package.module:factory`.

    Raises `ConfigError` with the nearest match for any other name.
    """
    if name in MODELS:
        return MODELS[name]
    if is_detector(name):
        return _with_detector(entry(trunk_of(name)))
    if is_library_network(name):
        library, network = library_and_network(name)
        return ModelEntry(factory=name, summary=f"{library}'s {network}", pictures=True)
    module, colon, factory = name.partition(":")
    if colon and module and factory:
        return ModelEntry(factory=name, summary="your own network")
    raise ConfigError(
        f"unknown model {name!r}{nearest(name, MODELS)}; your own network is named package.module:factory, "
        "a library's torchvision:NAME or timm:NAME, and a detector on any of these detector:NAME"
    )


# Detectors, which `detector.py` builds on the features of any network: `detector:mobilenet-v2`.

DETECTOR = "detector:"
TRUNK, ADDED = "trunk.", ("neck.*", "head.*")  # of the names of arrays and layers
CLASS_LAYER = "head.classes"  # has a row for each class


def is_detector(name: str) -> bool:
    return name.startswith(DETECTOR)


def trunk_of(name: str) -> str:
    """The network whose features a detector takes; any other network itself."""
    return name.removeprefix(DETECTOR)


def added_to_trunk(names: Collection[str]) -> frozenset[str]:
    """Those of a network's arrays that are a detector's neck and head; none of any other network."""
    if not any(name.startswith(TRUNK) for name in names):
        return frozenset()
    return frozenset(name for name in names if any(fnmatchcase(name, part) for part in ADDED))


def _with_detector(trunk: ModelEntry) -> ModelEntry:
    """The entry of a detector, whose trunk is cut as the network itself is."""
    ratios = {
        ratio: {
            **{f"{TRUNK}{layers}": each for layers, each in stages.items()},
            **dict.fromkeys(ADDED, ratio),
        }
        for ratio, stages in trunk.stage_ratios.items()
    }
    return replace(
        trunk,
        summary=f"a detector on: {trunk.summary}",
        targets=(*(f"{TRUNK}{layers}" for layers in trunk.targets), *ADDED),
        stage_ratios=ratios,
        pictures=True,
        example_shape=(3, 64, 64),
    )


# Networks of torchvision and timm, which `zoo.py` builds: `torchvision:resnet18`, `timm:lcnet_050`.

LIBRARIES = ("torchvision", "timm")


def is_library_network(name: str) -> bool:
    """Whether a network is named as one of a library, whether or not the library has it."""
    library, colon, _ = name.partition(":")
    return bool(colon) and library in LIBRARIES


def library_and_network(name: str) -> tuple[str, str]:
    """Both parts of a library network's name.

    Raises `ConfigError` for the name of weights (`timm:resnet18.a1_in1k`), of a file or of a hub.
    """
    library, _, network = name.partition(":")
    plain, dot, _ = network.partition(".")
    if not re.fullmatch(r"[A-Za-z0-9_]+", plain):
        raise ConfigError(
            f"'{name}' names no network of {library}: write {library}:NAME, as {library}:resnet18"
        )
    if dot:
        raise ConfigError(
            f"'{name}' names weights: the network is '{library}:{plain}', and [model] from = \"{name}\" "
            "starts it from these weights"
        )
    return library, network
