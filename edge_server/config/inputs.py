"""What pictures become before they reach the network: stated in `[data]`, else as its weights know them."""

from typing import Any, get_args

from edge_client.data.shapes import in_words
from edge_client.models.registry import InputRecord
from edge_server.config.config import Config
from edge_server.config.scaling import scaled_by
from edge_server.config.sections import DataSettings
from schemas.errors import ConfigError, format_count
from schemas.values import Interpolation, ModelSpec, Preprocessing

COLOURS = 3
OF_IMAGENET = "mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225]"
FIGURES = ("mean", "std")
KEYS = (*FIGURES, "crop", "interpolation")  # of [data], which the weights of a run may state


def with_inputs(config: Config, record: InputRecord) -> Config:
    """The configuration with the inputs of the weights that a run starts from, where it states none."""
    data, model = config.data, config.model
    update: dict[str, Any] = {
        "crop": data.crop or record.crop or "none",
        "interpolation": data.interpolation or _filter(record.interpolation),
    }
    if record.size is not None and model.input_shape is None and data.resize is None:
        model = model.model_copy(update={"input_shape": (len(record.mean) or COLOURS, *record.size)})
    if record.mean and not is_scaled(data):
        grey = model.input_shape is not None and model.input_shape[0] == 1
        update |= {key: _of_grey(getattr(record, key)) if grey else getattr(record, key) for key in FIGURES}
    return config.model_copy(update={"data": data.model_copy(update=update), "model": model})


def _of_grey(figures: tuple[float, ...]) -> tuple[float, ...]:
    """The figure of a network for grey pictures, by those of the colours."""
    return (sum(figures) / len(figures),)


def _filter(name: str | None) -> str:
    """The filter of this name; for one that devices do not have, the sharper of theirs."""
    filters: tuple[str, ...] = get_args(Interpolation)
    return name if name is not None and name in filters else filters[name is not None]


def is_scaled(data: DataSettings) -> bool:
    """Whether the file says by which numbers inputs are scaled."""
    return data.mean is not None or data.statistics is not None or data.scaling == "federated"


def as_stated(about: Preprocessing, data: DataSettings, spec: ModelSpec) -> Preprocessing:
    """The preprocessing with the figures of the file; `ConfigError` unless they fit the network's inputs."""
    about = scaled_by(about, data.statistics, spec)
    update: dict[str, Any] = {} if data.resizing is None else {"resizing": data.resizing}
    if data.mean is not None and data.std is not None:
        channels = spec.input_shape[0]
        if len(data.mean) not in (1, channels) or len(spec.input_shape) != 3:
            raise ConfigError(
                f"{format_count(len(data.mean), 'colour')}, and '{spec.name}' takes "
                f"{in_words(spec.input_shape)}",
                key="[data] mean",
                remedy="state one number for each colour of its pictures"
                if len(spec.input_shape) == 3
                else "scale what is not a picture by [data.statistics]",
            )
        update |= {"mean": data.mean, "std": data.std}
    return about.model_copy(update=update) if update else about


def describe_inputs(spec: ModelSpec, about: Preprocessing) -> str:
    """How pictures become inputs, in a line for the user; empty where the file says nothing of it."""
    if (how := about.resizing) is None:
        return ""
    part = (
        "all of a picture" if how.crop is None else f"the middle {100 * how.crop:.4g} % of a picture's side"
    )
    mean, std = (_list_numbers(figures) for figures in (about.mean, about.std))
    return (
        f"the network sees {part} as {in_words(spec.input_shape)} ({how.interpolation}), and pixels of 0 to "
        f"1 as (pixels - {mean}) / {std}"
    )


def describe_unscaled(config: Config, spec: ModelSpec, about: Preprocessing) -> str:
    """The warning of weights that were trained elsewhere, and pictures of no stated scale; else empty."""
    is_picture = len(spec.input_shape) == 3
    if not is_picture or is_scaled(config.data) or any(about.mean) or {*about.std} != {1.0}:
        return ""
    return (
        f"'{config.model.from_}' does not say how the inputs of its weights were scaled, and pixels of 0 to "
        f"1 are fed to them: state [data] mean and std (those of ImageNet: {OF_IMAGENET})"
    )


def _list_numbers(figures: tuple[float, ...]) -> str:
    text = ", ".join(f"{figure:g}" for figure in figures)
    return f"[{text}]" if len(figures) > 1 else text
