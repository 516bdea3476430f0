"""The section `[privacy]` of a federation file."""

import math
from dataclasses import fields
from typing import Literal

from pydantic import Field, field_validator

from edge_server.strategy.privacy.mechanism import Gaussian
from schemas.base import Settings
from schemas.errors import MAX_SECONDS
from schemas.security.secure_aggregation import MIN_HOLDERS


class PrivacySettings(Settings):
    """Differential privacy of clients (deploy/docs/explanation/privacy.md) and secure aggregation
    (deploy/docs/explanation/secure-aggregation.md).
    """

    mechanism: Literal["none", "gaussian"] = "none"
    """"gaussian" turns differential privacy on."""
    noise_multiplier: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Standard deviation of the noise on the sum, in units of the clip."""
    clip: float | str = 1.0
    """L2 norm to which each update is clipped, or "adaptive"."""
    initial_clip: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    """First value of an adaptive clip."""
    target_quantile: float = Field(default=0.5, gt=0, lt=1)
    """Quantile of the norms that an adaptive clip follows."""
    clip_learning_rate: float = Field(default=0.2, gt=0, allow_inf_nan=False)
    """Step of an adaptive clip."""
    quantile_noise: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Standard deviation of the noise on the count of unclipped updates; chosen if unset."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """Delta at which epsilon is counted."""
    budget: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The run ends before it would spend more epsilon than this."""
    amplification: bool = False
    """Count on nobody knowing which devices were chosen."""
    release_metrics: bool = False
    """Keep in the history what devices measure."""
    secure_aggregation: bool = False
    """The server reads only sums over at least `min_holders` updates."""
    min_holders: int = Field(default=MIN_HOLDERS, ge=MIN_HOLDERS)
    """Least number of updates in a sum."""
    threshold: float = Field(default=2 / 3, gt=0.5, le=1)
    """Share of a cohort that must help to open a sum."""
    value_range: float = Field(default=8.0, gt=0, le=1e6)
    """Every number of an update is clipped to plus or minus this."""
    masking_step_s: float = Field(default=30.0, gt=0, le=MAX_SECONDS)
    """Seconds for each step of agreeing on masks."""

    @field_validator("clip")
    @classmethod
    def _clip_is_a_norm(cls, clip: float | str) -> float | str:
        if clip != "adaptive" and (isinstance(clip, str) or not 0 < clip < math.inf):
            raise ValueError(f'a number above 0 or "adaptive", got {clip!r}')
        return clip

    def _check(self) -> None:
        bits = self.quantile_noise
        if bits is not None and 2 * bits <= self.noise_multiplier:
            raise ValueError(
                f"quantile-noise {bits:g} alone spends more than noise-multiplier {self.noise_multiplier:g} "
                f"allows: it must be above {self.noise_multiplier / 2:g}"
            )

    @property
    def gaussian(self) -> Gaussian | None:
        if self.mechanism == "none":
            return None
        alike = self.model_dump(include={field.name for field in fields(Gaussian)} - {"clip"})
        clip = None if isinstance(self.clip, str) else self.clip
        return Gaussian(**alike, clip=clip, drawn=self.amplification)
