"""Convolutions with large kernels in the frequency domain, where each is a product of matrices per frequency.

onnxruntime convolves with columns: it copies the maps for each place of the kernel, 25 times for 5x5. The
discrete Fourier transform of a convolution is the product of the transforms. There a map or a kernel is one
number per frequency, and the numbers of all channels meet in products of matrices [B, Ci] and [Ci, Co].

A transform is a product with a matrix of cosines and sines along each axis. A product whose second factor is
transposed moves the last axis to the front: after both axes frequencies are first, as products of many
matrices need them, and nothing was transposed. A graph has the angles, of which onnxruntime makes the waves
when it loads the graph.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

MIN_KERNEL = 5
HALF = 0.5  # each wave is in both halves of a spectrum
FEWER = 3  # how many times fewer multiplications pay for values that are copied more often


class Geometry(NamedTuple):
    """How a convolution's kernel moves over maps."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int


@dataclass(frozen=True)
class Axis:
    """An axis of maps with `size` places, of which kernels have `kernel`.

    A transform repeats its signal with the period `length`. What reaches over an end is then in places that
    the convolution does not have.
    """

    size: int
    kernel: int

    @property
    def length(self) -> int:
        return self.size + self.kernel // 2

    @property
    def count(self) -> int:
        """Frequencies of a real signal."""
        return self.length // 2 + 1

    def of_maps(self) -> Tensor:
        """The matrix [2 * count, size] from a map's places to the cosines, and the sines."""
        return torch.cat(self._waves(torch.arange(self.size))).float()

    def to_maps(self) -> Tensor:
        """The matrix [2 * count, size] of the inverse."""
        return torch.cat([self.shares() * wave for wave in self._waves(torch.arange(self.size))]).float()

    def of_kernels(self) -> tuple[Tensor, Tensor]:
        """The cosines and the sines [count, kernel] for a kernel, whose middle is place 0."""
        return self._waves(torch.arange(self.kernel) - self.kernel // 2)

    def shares(self) -> Tensor:
        """The factor [count, 1] of each frequency in the inverse, half if it is its own mirror image."""
        own_mirror = torch.remainder(2 * torch.arange(self.count), self.length) == 0
        return ((2 - own_mirror.double()) / self.length)[:, None]

    def _waves(self, places: Tensor) -> tuple[Tensor, Tensor]:
        turns = torch.remainder(torch.arange(self.count)[:, None] * places, self.length)
        # A graph keeps numbers in its operators, such as this length, in float32: pi is made of whole ones.
        angles = turns.double() * 8 / self.length * torch.atan(torch.ones((), dtype=torch.float64))
        return torch.cos(angles), torch.sin(angles)


@dataclass(frozen=True)
class Matrices:
    """Complex matrices `real` + i `imaginary`, [F, rows, columns] each, one for each frequency."""

    real: Tensor
    imaginary: Tensor

    @property
    def transpose(self) -> Self:
        return type(self)(self.real.transpose(1, 2), self.imaginary.transpose(1, 2))

    def times(self, other: Self) -> Self:
        return type(self)(
            torch.bmm(self.real, other.real) - torch.bmm(self.imaginary, other.imaginary),
            torch.bmm(self.imaginary, other.real) + torch.bmm(self.real, other.imaginary),
        )

    def times_conjugate(self, other: Self) -> Self:
        """The product with the conjugates of the others, which are not transposed."""
        return type(self)(
            torch.bmm(self.real, other.real) + torch.bmm(self.imaginary, other.imaginary),
            torch.bmm(self.imaginary, other.real) - torch.bmm(self.real, other.imaginary),
        )

    def conjugate_times(self, other: Self) -> Self:
        """The product of these matrices' conjugates, which are not transposed, with the others.

        A single product adds both terms: here they are larger than the factors.
        """
        return type(self)(
            torch.bmm(self.real, other.real) + torch.bmm(self.imaginary, other.imaginary),
            torch.bmm(self.real, other.imaginary) - torch.bmm(self.imaginary, other.real),
        )


Spectrum = tuple[Matrices, Matrices]  # at frequencies (u, v), and (-u, v); the others are their conjugates


def is_faster(maps: Sequence[int], kernel: Sequence[int], geometry: Geometry) -> bool:
    """Whether a convolution of `maps` [B, Ci, H, W] with `kernel` [Co, Ci / groups, h, w] belongs here.

    Its outputs are as large as its inputs, its kernels are large, its channels many and its maps small.
    """
    return (
        len(kernel) == 4
        and geometry.groups == 1
        and all(size == 1 for size in (*geometry.stride, *geometry.dilation))
        and all(2 * border + 1 == size for border, size in zip(geometry.padding, kernel[2:], strict=True))
        and min(kernel[2:]) >= MIN_KERNEL
        and FEWER * _multiplications(maps, kernel) < 3 * math.prod(kernel) * math.prod(maps[2:])
    )


def spectrum_bytes(maps: Sequence[int], kernel: Sequence[int]) -> int:
    """Bytes of the spectrum of `kernel` [Co, Ci, h, w] for `maps` [B, Ci, H, W]."""
    down, across = _axes(maps, kernel)
    return 4 * 4 * down.count * across.count * kernel[0] * kernel[1]


def _multiplications(maps: Sequence[int], kernel: Sequence[int]) -> int:
    """Multiplications of both passes per example: four transforms of maps, and three products of spectra."""
    down, across = _axes(maps, kernel)
    high, wide = 2 * down.count, 2 * across.count
    transforms = 2 * (kernel[0] + kernel[1]) * down.size * wide * (across.size + high)
    return transforms + 3 * 2 * high * wide * kernel[0] * kernel[1]


def convolve_maps(maps: Tensor, kernel: Tensor) -> Tensor:
    """The convolution [B, Co, H, W]."""
    axes = _axes(maps.shape, kernel.shape)
    pairs = zip(_of_maps(maps, axes), _of_kernel(kernel, axes), strict=True)
    one, other = (x.times_conjugate(w.transpose) for x, w in pairs)
    return _to_maps((one, other), axes)


def gradient_of_maps(gradient: Tensor, kernel: Tensor) -> Tensor:
    """The gradient [B, Ci, H, W] of the maps from that of the outputs [B, Co, H, W]."""
    axes = _axes(gradient.shape, kernel.shape)
    pairs = zip(_of_maps(gradient, axes), _of_kernel(kernel, axes), strict=True)
    one, other = (g.times(w) for g, w in pairs)
    return _to_maps((one, other), axes)


def gradient_of_kernel(gradient: Tensor, maps: Tensor, kernel: Tensor) -> Tensor:
    """The gradient [Co, Ci, h, w] of the kernel from that of the outputs [B, Co, H, W]."""
    axes = _axes(maps.shape, kernel.shape)
    pairs = zip(_of_maps(gradient, axes), _of_maps(maps, axes), strict=True)
    one, other = (g.transpose.conjugate_times(x) for g, x in pairs)
    return _to_kernel((one, other), axes)


def _axes(maps: Sequence[int], kernel: Sequence[int]) -> tuple[Axis, Axis]:
    """The axes of `maps` [B, C, H, W] and `kernel` [Co, Ci, h, w]."""
    return Axis(maps[2], kernel[2]), Axis(maps[3], kernel[3])


def _of_maps(maps: Tensor, axes: tuple[Axis, Axis]) -> Spectrum:
    """The spectrum of maps [B, C, H, W], along one axis after the other."""
    batch, channels, height, width = maps.shape
    down, across = (axis.of_maps() for axis in axes)
    waves = across @ maps.reshape(-1, width).T
    waves = down @ waves.reshape(-1, height).T
    high, wide = (axis.count for axis in axes)
    by_place = waves.reshape(2 * high, 2 * wide, batch, channels)
    (cos_cos, cos_sin), (sin_cos, sin_sin) = (half.chunk(2, 1) for half in by_place.chunk(2))
    shape = (high * wide, batch, channels)
    return (
        Matrices((cos_cos - sin_sin).reshape(shape), (sin_cos + cos_sin).reshape(shape)),
        Matrices((cos_cos + sin_sin).reshape(shape), (cos_sin - sin_cos).reshape(shape)),
    )


def _to_maps(spectrum: Spectrum, axes: tuple[Axis, Axis]) -> Tensor:
    """The maps [B, C, H, W] of a spectrum, along one axis after the other."""
    one, other = spectrum
    batch, channels = one.real.shape[1:]
    down, across = (axis.to_maps() for axis in axes)
    down = down * HALF
    high, wide = (axis.count for axis in axes)
    shape = (high, 1, wide, batch, channels)
    cos = (one.real + other.real).reshape(shape), (one.imaginary + other.imaginary).reshape(shape)
    sin = (one.imaginary - other.imaginary).reshape(shape), (other.real - one.real).reshape(shape)
    waves = torch.cat([torch.cat(cos, 1), torch.cat(sin, 1)])
    found = waves.reshape(2 * high, -1).T @ down
    found = found.reshape(2 * wide, -1).T @ across
    return found.reshape(batch, channels, axes[0].size, axes[1].size)


def _of_kernel(kernel: Tensor, axes: tuple[Axis, Axis]) -> Spectrum:
    """The spectrum of a kernel [Co, Ci, h, w], along both axes at once: it has few places."""
    places = kernel.reshape(-1, kernel.shape[2] * kernel.shape[3]).T
    waves = [wave.float() for wave in _plane_waves(axes)]
    parts = [(wave @ places).reshape(-1, *kernel.shape[:2]) for wave in waves]
    return Matrices(parts[0], parts[1]), Matrices(parts[2], parts[3])


def _to_kernel(spectrum: Spectrum, axes: tuple[Axis, Axis]) -> Tensor:
    """The kernel [Co, Ci, h, w] of a spectrum."""
    shares = axes[0].shares()[:, None] * axes[1].shares() * HALF
    waves = [(wave * shares.reshape(-1, 1)).float() for wave in _plane_waves(axes)]
    parts = [part for matrices in spectrum for part in (matrices.real, matrices.imaginary)]
    found = [wave.T @ part.reshape(part.shape[0], -1) for part, wave in zip(parts, waves, strict=True)]
    return sum(found[1:], found[0]).T.reshape(*parts[0].shape[1:], axes[0].kernel, axes[1].kernel)


def _plane_waves(axes: tuple[Axis, Axis]) -> list[Tensor]:
    """Real and imaginary parts [F, h * w] of both halves of a kernel's spectrum."""
    cos_down, sin_down = (wave[:, None, :, None] for wave in axes[0].of_kernels())
    cos_across, sin_across = (wave[None, :, None, :] for wave in axes[1].of_kernels())
    cos_cos, sin_sin = cos_down * cos_across, sin_down * sin_across
    sin_cos, cos_sin = sin_down * cos_across, cos_down * sin_across
    waves = (cos_cos - sin_sin, sin_cos + cos_sin, cos_cos + sin_sin, cos_sin - sin_cos)
    return [wave.reshape(-1, axes[0].kernel * axes[1].kernel) for wave in waves]
