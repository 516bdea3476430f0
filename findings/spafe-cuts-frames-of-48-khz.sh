#!/usr/bin/env bash
# Guess: spafe and speechpy compute the features of a recording of 48 kHz from whole frames, 25 and 20 ms, when they are told its
# rate: the Fourier transform is as long as a frame, or they say that it is not, as python_speech_features does.
# What happens: both cut a frame of 1200 or 960 samples to the transform's 512, after its window, of which the first half is left.
# The edge smears each tone over all bands: a whistle of 6 kHz, a hundredth of a hum at 200 Hz, raises its band by a fifth at most,
# where it is hundreds of times as loud with a transform of 2048. A detector that learned from it hears no bearing fail.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet spafe==0.3.3 speechpy==2.4 numpy==2.4.6
cat > try.py <<'PYTHON'
import warnings
from importlib.metadata import version

import numpy as np
import speechpy
from spafe.features.mfcc import mel_spectrogram

RATE = 48000
time = np.arange(RATE) / RATE
hum = np.sin(2 * np.pi * 200 * time)
whistle = hum + 0.01 * np.sin(2 * np.pi * 6000 * time)


def by_spafe(signal: np.ndarray, **settings: int) -> np.ndarray:
    return mel_spectrogram(signal, fs=RATE, pre_emph=False, nfilts=40, **settings)[0].mean(0)


def by_speechpy(signal: np.ndarray, **settings: int) -> np.ndarray:
    return speechpy.feature.mfe(signal, RATE, **settings)[0].mean(0)


print("spafe", version("spafe"), "speechpy", version("speechpy"))
warnings.simplefilter("error")
for name, features, length in (("spafe", by_spafe, "nfft"), ("speechpy", by_speechpy, "fft_length")):
    cut = float((features(whistle) / features(hum)).max())
    whole = float((features(whistle, **{length: 2048}) / features(hum, **{length: 2048})).max())
    print(f"{name}: a whistle raises its band {cut:.2f} times, {whole:.0f} times with a transform of 2048")
    assert cut < 1.5 and whole > 100
PYTHON
venv/bin/python try.py
# Seen: spafe: a whistle raises its band 1.06 times, 37099 times with a transform of 2048; speechpy: 1.19 and 315 times
