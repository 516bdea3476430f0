#!/usr/bin/env bash
# Guess: pydub's `set_frame_rate`, by which many bring recordings to the 16 kHz of a keyword spotter, filters what the new rate
# cannot hold, as every resampler does: a tone of 10 kHz is gone.
# What happens: it draws lines between samples and filters nothing. The tone is at 6 kHz afterwards, as loud as before,
# amid the consonants of speech: a network that was trained on what sox or librosa resampled is given tones that were never there.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pydub==0.25.1 numpy==2.4.6 soxr==1.1.0 'audioop-lts==0.2.2; python_version >= "3.13"'
cat > try.py <<'PYTHON'
import warnings
from importlib.metadata import version

import numpy as np
import soxr

warnings.simplefilter("ignore")  # no ffmpeg, which is not used
from pydub import AudioSegment  # noqa: E402

HIGH, LOW = 48_000, 16_000


def loudest(samples: np.ndarray) -> tuple[int, float]:
    """The frequency in hertz of the loudest tone of a second, and its amplitude."""
    spectrum = np.abs(np.fft.rfft(samples[:LOW] * np.hanning(LOW))) / LOW * 4
    return int(spectrum.argmax()), round(float(spectrum.max()), 2)


def resampled(hertz: int) -> dict[str, tuple[int, float]]:
    samples = (10_000 * np.sin(2 * np.pi * hertz * np.arange(HIGH + 4800) / HIGH)).astype(np.int16)
    segment = AudioSegment(samples.tobytes(), sample_width=2, frame_rate=HIGH, channels=1).set_frame_rate(LOW)
    by_pydub = np.array(segment.get_array_of_samples()) / 10_000
    return {"pydub": loudest(by_pydub), "soxr": loudest(soxr.resample(samples / 10_000, HIGH, LOW))}


print("pydub", version("pydub"), "soxr", soxr.__version__)
seen = {hertz: resampled(hertz) for hertz in (1_000, 10_000)}
for hertz, tones in seen.items():
    print(f"a tone of {hertz} Hz at an amplitude of 1 is, in Hz and amplitude, {tones}")
assert all(frequency == 1_000 and amplitude > 0.9 for frequency, amplitude in seen[1_000].values())
assert seen[10_000]["pydub"][0] == 6_000 and seen[10_000]["pydub"][1] > 0.9 and seen[10_000]["soxr"][1] < 0.01
PYTHON
venv/bin/python try.py
# Seen: a tone of 10000 Hz at an amplitude of 1 is {pydub: (6000, 1.0), soxr: (6000, 0.0)}
