"""A network for recordings: log-mel spectra of the raw samples, then two convolutions and a hidden layer.

The spectra are a part of the network without parameters: training, the exported file and a service compute
them alike. No statistics of anybody's data are needed, since each recording's spectrum gets mean 0 and
deviation 1 by itself, whatever its loudness; that of silence stays near 0. The mel scale is HTK's,
mel(f) = 2595 log10(1 + f / 700) (Young et al., The HTK Book, section 5.4).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from schemas.errors import ConfigError

RATE, BANDS, WINDOW, FRAMES = 8000, 32, 256, 64
"""Hz of the samples (`wav:FOLDER?rate=8000` resamples others); mel bands; samples of a window; about as many
windows over a recording, whatever its length."""
FLOOR = 1e-6
LEAST_DEVIATION = 1.0
"""Of a spectrum, by which it is divided: real recordings have 2.6 to 6.1, silence has the noise of rounding
alone, which differs between runtimes."""
MIN_SAMPLES = 8 * WINDOW
CHANNELS, HIDDEN = 16, 64


class LogMel(nn.Module):
    """Log-mel spectra [B, 1, 32, T] of samples [B, 1, N], by convolution with a windowed Fourier basis.

    The bands lie evenly on the mel scale between 0 and half of `RATE`.
    """

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.hop = max(1, (samples - WINDOW) // (FRAMES - 1))
        self.frames = (samples - WINDOW) // self.hop + 1
        # Plain tensors: as buffers they would travel with the model.
        self.basis, self.filters = _fourier_basis(), _mel_filters()
        self.fixed_macs = self.basis.numel() * self.frames

    def forward(self, x: Tensor) -> Tensor:
        """Spectra with mean 0 over each recording, and deviation 1 unless it is nearly silent."""
        waves = functional.conv1d(x, self.basis.to(x), stride=self.hop).square()
        power = waves[:, : WINDOW // 2 + 1] + waves[:, WINDOW // 2 + 1 :]
        logs = torch.log(torch.matmul(self.filters.to(x), power) + FLOOR)
        centred = logs - logs.mean((1, 2), keepdim=True)
        deviation = centred.square().mean((1, 2), keepdim=True).sqrt()
        return (centred / torch.clamp(deviation + FLOOR, min=LEAST_DEVIATION)).unsqueeze(1)


class SpeechCNN(nn.Module):
    """Log-mel spectra, 5x5 convolutions of 16 and 32 channels with pooling of 2, a hidden layer of 64.

    Input [B, 1, N] samples from -1 to 1, N at least 2,048; `ConfigError` for another shape.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        if len(input_shape) != 2 or input_shape[0] != 1 or input_shape[1] < MIN_SAMPLES:
            raise ConfigError(f"takes recordings [1, samples] of at least {MIN_SAMPLES} samples")
        self.spectra = LogMel(input_shape[1])
        frames = self.spectra.frames
        self.conv1 = nn.Conv2d(1, CHANNELS, 5, padding=2)
        self.conv2 = nn.Conv2d(CHANNELS, 2 * CHANNELS, 5, padding=2)
        self.linear1 = nn.Linear(2 * CHANNELS * (BANDS // 4) * (frames // 4), HIDDEN)
        self.linear2 = nn.Linear(HIDDEN, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = functional.max_pool2d(torch.relu(self.conv1(self.spectra(x))), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.linear2(torch.relu(self.linear1(torch.flatten(x, 1))))  # type: ignore[no-any-return]


def _fourier_basis() -> Tensor:
    """Cosines and sines of every frequency, times Hann's window [2 (W/2 + 1), 1, W]."""
    time = torch.arange(WINDOW, dtype=torch.float64)
    angles = 2 * math.pi * torch.arange(WINDOW // 2 + 1, dtype=torch.float64)[:, None] * time / WINDOW
    hann = 0.5 - 0.5 * torch.cos(2 * math.pi * time / (WINDOW - 1))
    return (torch.cat([torch.cos(angles), torch.sin(angles)]) * hann)[:, None].float()


def _mel_filters() -> Tensor:
    """Triangles [32, W/2 + 1], each from the centre of the band before to that of the band after."""
    highest = 2595 * math.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, highest, BANDS + 2, dtype=torch.float64) / 2595) - 1)
    lines = torch.arange(WINDOW // 2 + 1, dtype=torch.float64) * RATE / WINDOW
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    sides = torch.minimum((lines - low) / (centre - low), (high - lines) / (high - centre))
    return sides.clamp(min=0).float()
