"""The section `[privacy]` of a federation file."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, field_validator, model_validator

from edge_server.strategy.privacy.mechanism import Gaussian
from schemas.base import Settings
from schemas.security.secure_aggregation import LEAST_HOLDERS


class PrivacySettings(Settings):
    """What the model may tell of single devices, and the server learn: both off unless they are named.

    Client-level differential privacy (deploy/docs/explanation/privacy.md) has a `mechanism`.

    Each update is clipped to the L2 norm `clip`, and their sum gets noise of `noise_multiplier` times that.
    An "adaptive" clip begins at `initial_clip` and follows the norms' `target_quantile` by
    `clip_learning_rate`; `quantile_noise` is the deviation of the noise on the count of the unclipped. The
    run ends before it would spend more than `budget` epsilon at `delta`. `amplification` counts on nobody
    knowing who was chosen. What devices measure stays out of the history without `release_metrics`.

    With `secure_aggregation` the server reads only sums over at least `min_holders` updates, which the share
    `threshold` of a cohort must help to open; each step of agreeing may take `masking_step_s` seconds. Every
    number of an update is clipped to +-`value_range` (deploy/docs/explanation/secure-aggregation.md).
    """

    mechanism: Literal["none", "gaussian"] = "none"
    noise_multiplier: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    clip: float | str = 1.0
    initial_clip: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    target_quantile: float = Field(default=0.5, gt=0, lt=1)
    clip_learning_rate: float = Field(default=0.2, gt=0, allow_inf_nan=False)
    quantile_noise: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    budget: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    amplification: bool = False
    release_metrics: bool = False
    secure_aggregation: bool = False
    min_holders: int = Field(default=LEAST_HOLDERS, ge=LEAST_HOLDERS)
    threshold: float = Field(default=2 / 3, gt=0.5, le=1)
    value_range: float = Field(default=8.0, gt=0, le=1e6)
    masking_step_s: float = Field(default=30.0, gt=0)

    @field_validator("clip")
    @classmethod
    def _clip_is_a_norm(cls, clip: float | str) -> float | str:
        if clip != "adaptive" and (isinstance(clip, str) or not 0 < clip < math.inf):
            raise ValueError(f'a number above 0 or "adaptive", got {clip!r}')
        return clip

    @model_validator(mode="after")
    def _bits_leave_noise_for_updates(self) -> PrivacySettings:
        bits = self.quantile_noise
        if bits is not None and 2 * bits <= self.noise_multiplier:
            raise ValueError(
                f"quantile-noise {bits:g} alone spends more than noise-multiplier {self.noise_multiplier:g} "
                f"allows: it must be above {self.noise_multiplier / 2:g}"
            )
        return self

    @property
    def gaussian(self) -> Gaussian | None:
        """The mechanism, where there is one."""
        if self.mechanism == "none":
            return None
        return Gaussian(
            noise_multiplier=self.noise_multiplier,
            clip=None if isinstance(self.clip, str) else self.clip,
            initial_clip=self.initial_clip,
            target_quantile=self.target_quantile,
            clip_learning_rate=self.clip_learning_rate,
            quantile_noise=self.quantile_noise,
            delta=self.delta,
            budget=self.budget,
            drawn=self.amplification,
        )
