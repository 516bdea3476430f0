"""The section `[data.statistics]`: by which numbers all devices scale their inputs."""

from typing import Annotated

from pydantic import Field

from edge_client.data.columns import arrange_figures, column_misfit, features_of
from schemas.base import Settings
from schemas.errors import ConfigError, format_count
from schemas.values import MAX_NAME, ModelSpec, Preprocessing

ColumnName = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Deviation = Annotated[float, Field(gt=0)]


class Scaling(Settings):
    """Means and standard deviations in the units of the data: one number each, or one per channel."""

    mean: Annotated[tuple[float, ...], Field(min_length=1)]
    """Mean of each channel."""
    std: Annotated[tuple[Deviation, ...], Field(min_length=1)]
    """Standard deviation of each channel."""
    columns: tuple[ColumnName, ...] = ()
    """The columns that these figures are of, in their order; that of `[data] columns` if unset."""
    target_mean: tuple[float, ...] = ()
    """Mean of each number that is learned; such numbers stay as they are if unset."""
    target_std: tuple[Deviation, ...] = ()
    """Standard deviation of each number that is learned."""

    def _check(self) -> None:
        if len(self.mean) != len(self.std) or len(self.target_mean) != len(self.target_std):
            raise ValueError("state as many means as standard deviations")


def scaled_by(preprocessing: Preprocessing, scaling: Scaling | None, spec: ModelSpec) -> Preprocessing:
    """The preprocessing with these figures, if any, in the order of its columns.

    Raises `ConfigError` unless they fit the network's inputs.
    """
    if scaling is None:
        return preprocessing
    channels, targets = spec.input_shape[0], len(scaling.target_mean)
    if len(scaling.mean) not in (1, channels) or targets not in (0, spec.num_classes):
        raise ConfigError(
            f"[data.statistics] has {format_count(len(scaling.mean), 'mean')} and {targets} of targets, "
            f"and the network has {format_count(channels, 'channel')} and "
            f"{format_count(spec.num_classes, 'output')}",
            remedy="state one for each",
        )
    scale, columns = preprocessing.scale, features_of(scaling.columns)
    about = preprocessing.model_copy(
        update={
            "mean": tuple(mean / scale for mean in scaling.mean),
            "std": tuple(std / scale for std in scaling.std),
            "target_mean": scaling.target_mean,
            "target_std": scaling.target_std,
        }
    )
    if not columns or not preprocessing.columns:
        return about
    if why := column_misfit(columns, preprocessing.columns):
        raise ConfigError(why, key="[data.statistics] columns")
    return arrange_figures(about.model_copy(update={"columns": columns}), preprocessing.columns)


def scaling_in(preprocessing: Preprocessing) -> Scaling:
    """The figures by which a preprocessing scales, the inverse of `scaled_by`."""
    scale = preprocessing.scale
    return Scaling(
        mean=tuple(mean * scale for mean in preprocessing.mean),
        std=tuple(std * scale for std in preprocessing.std),
        columns=tuple(column.in_words() for column in preprocessing.columns),
        target_mean=preprocessing.target_mean,
        target_std=preprocessing.target_std,
    )
