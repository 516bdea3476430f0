"""The networks of torchvision and timm by name, `torchvision:mobilenet_v3_small` and `timm:lcnet_050`.

A library is imported when one of its networks is built. Its own table alone says which names there are:
nothing is downloaded, and weights are loaded nowhere but by `[model] from`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edge_client.models import registry
from schemas.errors import ConfigError, near

if TYPE_CHECKING:
    from torch import nn

Factory = Callable[[tuple[int, ...], int], "nn.Module"]


def find_factory(name: str, *, what: str) -> Factory:
    """The factory of a library's network; `ConfigError` that starts with `what` if one of both is missing."""
    try:
        library, network = _find(*registry.library_and_network(name))
    except ConfigError as error:
        raise ConfigError(str(error), key=what) from error
    return lambda input_shape, num_classes: library.build(network, input_shape, num_classes)


def input_record(name: str) -> registry.InputRecord:
    """The inputs of the weights `LIBRARY:NETWORK` or `LIBRARY:NETWORK.WEIGHTS`, as the library states them.

    Without `.WEIGHTS` they are those of its default weights. Raises `ConfigError` for an unknown name.
    """
    plain, _, weights = name.partition(".")
    try:
        library, network = _find(*registry.library_and_network(plain))
    except ConfigError as error:
        raise ConfigError(str(error), key=f"weights '{name}'") from error
    return library.read_inputs(network, weights)


def with_colours(module: "nn.Module", colours: int) -> "nn.Module":
    """The module with a first convolution for pictures of so many colours; changed in place.

    Raises `ConfigError` if the first convolution does not read three colours.
    """
    from torch import nn

    name, first = next(
        (item for item in module.named_modules() if isinstance(item[1], nn.Conv2d)), ("", None)
    )
    if not isinstance(first, nn.Conv2d) or first.in_channels != 3 or first.groups != 1:
        raise ConfigError(f"{type(module).__name__} takes pictures of three colours, and not of {colours}")
    options: dict[str, Any] = {
        key: getattr(first, key) for key in ("kernel_size", "stride", "padding", "dilation")
    }
    stem = nn.Conv2d(colours, first.out_channels, bias=first.bias is not None, **options)
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, stem)
    return module


@dataclass(frozen=True)
class Library:
    """Where the networks of a library are, and how one is built and described.

    `package` is what pip installs it with.
    """

    package: str
    list_names: Callable[[], Collection[str]]
    build: Callable[[str, tuple[int, ...], int], "nn.Module"]
    read_inputs: Callable[[str, str], registry.InputRecord]


def _find(name: str, network: str) -> tuple[Library, str]:
    """The library `name`, imported, and the network if the library has it; `ConfigError` otherwise."""
    library = _LIBRARIES[name]
    try:
        import_module(name)
    except ImportError as error:
        missing = error.name or name
        raise ConfigError(f"needs {missing}: pip install '{library.package}'") from error
    names = library.list_names()
    if network in names:
        return library, network
    match = near(network, names)
    hint = f" (did you mean '{name}:{match}'?)" if match else ""
    raise ConfigError(f"{name} has no network '{network}' among its {len(names)}{hint}")


def _list_torchvision() -> Collection[str]:
    from torchvision import models

    # Without those that segment, detect and look at videos.
    names: list[str] = models.list_models(module=models)
    return names


# The auxiliary outputs of these two networks are for training them from nothing.
_WITHOUT_AUXILIARY: Mapping[str, Any] = {"aux_logits": False, "init_weights": True}
_OPTIONS = {"googlenet": _WITHOUT_AUXILIARY, "inception_v3": _WITHOUT_AUXILIARY}


def _build_torchvision(network: str, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
    from torchvision import models

    colours, height, width = registry.image_shape(input_shape)
    options = dict(_OPTIONS.get(network, {}))
    if network.startswith("vit_"):
        if height != width:
            raise ConfigError(f"its pictures are square, and not {height} x {width}")
        options["image_size"] = height
    module: nn.Module = models.get_model(network, weights=None, num_classes=num_classes, **options)
    return module if colours == 3 else with_colours(module, colours)


def _read_torchvision(network: str, weights: str) -> registry.InputRecord:
    from torchvision import models

    known = models.get_model_weights(network)
    if weights and weights not in known.__members__:
        match = near(weights, known.__members__)
        hint = f" (did you mean '{match}'?)" if match else f" (it has {', '.join(known.__members__)})"
        raise ConfigError(f"torchvision has no weights '{weights}' of '{network}'{hint}")
    made = (known[weights] if weights else known.DEFAULT).transforms()
    (crop,), (resized,) = made.crop_size, made.resize_size
    return registry.InputRecord(
        size=(crop, crop),
        mean=tuple(made.mean),
        std=tuple(made.std),
        crop=crop / resized,
        interpolation=made.interpolation.value,
    )


def _list_timm() -> Collection[str]:
    import timm

    names: list[str] = timm.list_models()
    return names


def _build_timm(network: str, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
    import timm

    colours, *size = registry.image_shape(input_shape)
    record = timm.get_pretrained_cfg(network)
    # The others take pictures of any size, and do not know the option.
    options: dict[str, Any] = (
        {"img_size": tuple(size)} if record is not None and record.fixed_input_size else {}
    )
    module: nn.Module = timm.create_model(
        network, pretrained=False, num_classes=num_classes, in_chans=colours, **options
    )
    return module


def _read_timm(network: str, weights: str) -> registry.InputRecord:
    import timm

    try:
        record = timm.get_pretrained_cfg(f"{network}.{weights}" if weights else network)
    except RuntimeError as error:
        raise ConfigError(f"timm has no weights '{weights}' of '{network}'") from error
    if record is None:
        return registry.InputRecord()
    _, height, width = record.input_size
    return registry.InputRecord(
        size=(height, width),
        mean=tuple(record.mean),
        std=tuple(record.std),
        crop=record.crop_pct,
        interpolation=record.interpolation or None,
    )


_LIBRARIES: Mapping[str, Library] = {
    "torchvision": Library(
        "edge-federation[client]", _list_torchvision, _build_torchvision, _read_torchvision
    ),
    "timm": Library("edge-federation[pretrained]", _list_timm, _build_timm, _read_timm),
}
