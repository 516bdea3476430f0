"""The server's test data, and the model's shape and classes."""

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from edge_client.data import shapes, source_options, sources
from edge_client.data.classes import complete_names, remark_on_gaps, remark_on_numbers, shorten_names
from edge_client.data.columns import completed_by, features_of, in_columns
from edge_client.data.dataset import LabelledData, sample
from edge_client.data.pictures.scale import scale_misfit
from edge_client.data.shapes import in_words
from edge_client.data.tasks import labels as conversion
from edge_client.data.tasks import registry
from edge_client.data.tasks.labels import with_labels
from edge_client.models.registry import InputRecord, entry
from edge_server.config.config import Config
from edge_server.config.errors import section_keys
from edge_server.config.scaling import scaled_by
from edge_server.config.sections import DataSettings
from schemas.errors import ConfigError, format_count, near
from schemas.values import Feature, Interpolation, ModelSpec, Preprocessing, Resizing

# What pictures become before they reach the network: stated in `[data]`, else as its weights know them.

COLOURS = 3
OF_IMAGENET = "mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225]"
FIGURES = ("mean", "std")
KEYS = (*FIGURES, "crop", "interpolation")  # of [data], which the weights of a run may state


def with_inputs(config: Config, record: InputRecord) -> Config:
    """The configuration with the inputs of the weights that a run starts from, where it states none."""
    data, model = config.data, config.model
    update: dict[str, Any] = {
        "crop": data.crop or (None if _has_boxes(model.task) else record.crop) or "none",
        "interpolation": data.interpolation or _filter(record.interpolation),
    }
    if record.size is not None and model.input_shape is None and data.resize is None:
        model = model.model_copy(update={"input_shape": (len(record.mean) or COLOURS, *record.size)})
    if record.mean and not is_scaled(data):
        grey = model.input_shape is not None and model.input_shape[0] == 1
        update |= {key: _of_grey(getattr(record, key)) if grey else getattr(record, key) for key in FIGURES}
    return config.model_copy(update={"data": data.model_copy(update=update), "model": model})


def _has_boxes(task: str) -> bool:
    return registry.learning_task(task).labels == "boxes"


def resizing_of(data: DataSettings, task: str) -> Resizing | None:
    """How pictures of another size are resized, if anything says so; boxes keep their proportions."""
    if not _has_boxes(task):
        return data.resizing
    return (data.resizing or Resizing()).model_copy(update={"letterbox": True})


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
    how = resizing_of(data, spec.task)
    update: dict[str, Any] = {} if how is None else {"resizing": how}
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
    whole = "all of a picture in its proportions" if how.letterbox else "all of a picture"
    part = whole if how.crop is None else f"the middle {100 * how.crop:.4g} % of a picture's side"
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


# Merges tables of a federation file, and parses `key=value` arguments as tables.


def merge_tables(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables section by section; a component of the strategy is replaced as a whole."""
    merged = dict(base)
    for section, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(section), Mapping):
            merged[section] = {**merged[section], **value}
        else:
            merged[section] = value
    return merged


def override_table(word: str) -> dict[str, Any]:
    """The table of one `key=value` argument; `ConfigError` with the nearest key."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise ConfigError(f"'{word}' is not key=value (for instance rounds=3 or training.learning-rate=0.1)")
    section, dot, name = key.partition(".")
    if section == "recipe":
        raise ConfigError(
            "a recipe is not a key to put over a file",
            key=f"'{word}'",
            remedy=f"name it as the first argument (edge-server simulate {text if not dot else 'fedavg'}), "
            'or write recipe = "..." at the top of the file',
        )
    if not dot:
        section, name = _section_of(key), key
    try:
        # TOML reads `resize=0x5`, a size without a height, as 5.
        value = text if text.startswith("0x") else tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    return {section: {name: value}}


def _section_of(key: str) -> str:
    sections = section_keys(Config)
    components = sections.pop("strategy")
    owners = [name for name, keys in sections.items() if key in keys]
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise ConfigError(f"'{key}' stands in several sections: {', '.join(f'{o}.{key}' for o in owners)}")
    if key in components:
        raise ConfigError(f"unknown key '{key}': it is one of [strategy], so write strategy.{key}=...")
    match = near(key, {alias for keys in sections.values() for alias in keys})
    remedy = "`edge-server check FILE` prints every key" if match is None else f"did you mean '{match}'?"
    raise ConfigError(f"unknown key '{key}' ({remedy})")


log = logging.getLogger(__name__)


def load_test_data(config: Config) -> LabelledData | None:
    """The configured number of test examples; none without a source.

    They come from the source's official test part, or from all of a source without one.
    """
    if config.data.source is None:
        return None
    data = read_source(config, config.data.source, split="test")
    if config.data.classes is None and (remark := remark_on_gaps(data)):
        log.warning("[data] source: %s", remark)
    spec = model_spec(config, data)
    columns = stated_columns(config, data, spec)
    try:
        data = in_columns(data, columns)
    except ConfigError as error:
        raise ConfigError(str(error), key="[data] source") from error
    data = data if config.data.test_samples is None else sample(data, config.data.test_samples)
    data = replace(data, images=np.asarray(data.images))
    data = shapes.fit_data(data, spec.input_shape)
    return replace(data, preprocessing=as_stated(data.preprocessing, config.data, spec))


def read_source(config: Config, source: str, *, split: source_options.Split = "train") -> LabelledData:
    """Examples of the configured source in the configured size, with labels of the configured task.

    Pictures are resized when they are read: see `with_sides`. Raises `ConfigError` that starts with the key.
    """
    try:
        data = sources.load_source(source, data_root=config.data.data_root, split=split)
        data = with_labels(data, registry.learning_task(config.model.task).labels)
    except ConfigError as error:
        raise ConfigError(str(error), key="[data] source") from error
    if (how := resizing_of(config.data, config.model.task)) is not None:
        about = data.preprocessing.model_copy(update={"resizing": how})
        data = replace(data, preprocessing=about)
    try:
        data = data if config.data.sides is None else shapes.with_sides(data, config.data.sides)
    except ConfigError as error:
        raise ConfigError(str(error), key="[data] resize") from error
    stated = config.data.common_scale
    if stated is None:
        return data
    if data.in_units and (why := scale_misfit(data.preprocessing.picture_scale, stated)):
        raise ConfigError(why, key="[data] source")
    return replace(data, preprocessing=data.preprocessing.model_copy(update={"picture_scale": stated}))


def model_spec(config: Config, data: LabelledData | None) -> ModelSpec:
    """The network's shape and outputs, from the file or the data; `ConfigError` without both."""
    task = registry.learning_task(config.model.task)
    shape = config.model.input_shape or (_input_shape(config, data) if data else None)
    labels = config.num_classes or (data.num_classes if data else None)
    classes = (
        labels
        if shape is None or (labels is None and task.has_named_outputs)
        else task.outputs(labels or 1, shape)
    )
    if shape is None or classes is None:
        raise ConfigError(
            "[model] input-shape and num-classes (or [data] classes) are needed where [data] names no source"
        )
    for key, changes in (("augment", config.training.augment), ("mirror", config.training.mirror)):
        if changes and len(shape) != 3:
            raise ConfigError(
                f"pictures are changed, and '{config.model.name}' takes {in_words(shape)}",
                key=f"[training] {key}",
                remedy="leave it out",
            )
    known = entry(config.model.name).rate
    if data is not None and known is not None and data.preprocessing.rate not in (None, known):
        raise ConfigError(
            f"recordings of {data.preprocessing.rate:g} Hz, and '{config.model.name}' takes {known:g}",
            key="[data] source",
            remedy=f"add rate={known:g} to the source",
        )
    if data is not None and shapes.shape_misfit(data, shape):
        raise ConfigError(
            f"{shape}, but the examples of [data] source are {data.input_shape}",
            key="[model] input-shape",
            remedy="leave it out, and it comes from the data",
        )
    if (
        data is not None
        and task.has_named_outputs
        and config.data.classes is None
        and data.num_classes > classes
    ):
        raise ConfigError(
            f"{classes}, but [data] source has {data.num_classes} classes",
            key="[model] num-classes",
            remedy="leave it out, and it comes from the data, or name in [data] classes those that "
            f"count of {shorten_names(data.class_names, 1000)}",
        )
    return ModelSpec(name=config.model.name, input_shape=shape, num_classes=classes, task=task.name)


def _input_shape(config: Config, data: LabelledData) -> tuple[int, ...]:
    """The network's input shape for this data; pictures [H, W] are grey.

    Grey pictures get the colours for which `[data] mean` has numbers. `ConfigError` if nothing says whether
    [A, B] is a picture.
    """
    shape, network = data.input_shape, entry(config.model.name)
    if data.question and network.asks:
        raise ConfigError(data.question, key="[data] source")
    shape = (1, *shape) if network.pictures and len(shape) == 2 else shape
    coloured = len(config.data.mean or ()) == COLOURS and len(shape) == 3 and shape[0] == 1
    return (COLOURS, *shape[1:]) if coloured else shape


def stated_classes(config: Config, data: LabelledData | None, count: int) -> tuple[str, ...]:
    """The names of the model's `count` outputs in the file, else in the data.

    Empty if neither has any, or if the outputs of the task have none.
    """
    if not registry.learning_task(config.model.task).has_named_outputs:
        return ()
    names = config.data.classes or (_names(data) if data is not None else ())
    if names and len(names) < count:
        log.warning(
            "%d of %d classes are named: %s", len(names), count, shorten_names(complete_names(names, count))
        )
    return complete_names(names, count) if names else ()


def _names(data: LabelledData) -> tuple[str, ...]:
    """The names of the data's classes; empty for numbers from 0, which may be places in the devices' list."""
    if remark := remark_on_numbers(data):
        log.warning("[data] source: %s", remark)
    return data.class_names if data.named or remark else ()


def stated_columns(config: Config, data: LabelledData | None, spec: ModelSpec) -> tuple[Feature, ...]:
    """The network's inputs by the file, else by the data, else by the figures that the file scales them with.

    Empty if none names them. Raises `ConfigError` for more or fewer than the network has.
    """
    own, scaling = () if data is None else data.columns, config.data.statistics
    names = config.data.columns or (scaling.columns if scaling is not None and not own else ())
    if not names:
        return own
    if len(names) not in spec.input_shape[:2]:
        raise ConfigError(
            f"{len(names)} are named, and '{spec.name}' takes {shapes.in_words(spec.input_shape)}",
            key="[data] columns",
            remedy="name as many as it has inputs",
        )
    return completed_by(features_of(names), [own])


def as_the_federation(
    data: LabelledData, model: ModelSpec, classes: tuple[str, ...], columns: tuple[Feature, ...] = ()
) -> LabelledData:
    """The server's examples in the federation's columns and classes; `ConfigError` if they do not fit."""
    try:
        return conversion.in_task(in_columns(data, columns), model.task, classes)
    except ConfigError as error:
        raise ConfigError(str(error), key="[data] source") from error
