#!/usr/bin/env bash
# Guess: kaldi-native-fbank gives the same features for the same recording, and for one that is louder by a factor those plus
# a constant, as they are logarithms of energies.
# What happens: by default it adds noise (`dither`) at the level of the last bit of 16, for samples from -1 to 1, from a generator
# that goes on from call to call: bins beside a clean tone differ by above 1 from one call to the next, so that features depend
# on how many recordings came before. Without noise they are equal, but what is below a floor (`eps`) is cut: samples of 16
# bits instead of -1 to 1 add 20.8 to the tone's own bin and 8 to another.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet kaldi-native-fbank==1.23.0 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import kaldi_native_fbank as knf
import numpy as np

RATE = 16_000
TONE = (0.1 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype(np.float32)


def features(samples: np.ndarray, dither: float | None = None) -> np.ndarray:
    options = knf.FbankOptions()
    options.frame_opts.samp_freq = RATE
    if dither is not None:
        options.frame_opts.dither = dither
    fbank = knf.OnlineFbank(options)
    fbank.accept_waveform(RATE, samples.tolist())
    fbank.input_finished()
    return np.array([fbank.get_frame(frame) for frame in range(fbank.num_frames_ready)])


twice = np.abs(features(TONE) - features(TONE)).max()
still = np.abs(features(TONE, 0) - features(TONE, 0)).max()
louder = features(TONE * 2**15, 0) - features(TONE, 0)
print("kaldi-native-fbank", version("kaldi-native-fbank"))
print("by default: dither", knf.FbankOptions().frame_opts.dither, "two calls differ by", twice, "without noise by", still)
print(f"louder by 2^15 without noise: from {louder.min():.1f} to {louder.max():.1f}, expected {2 * np.log(2**15):.1f}")
assert twice > 0.8 and still == 0
assert louder.min() < 10 and abs(louder.max() - 2 * np.log(2**15)) < 0.1
PYTHON
venv/bin/python try.py
# Seen: two calls differ by 1.73, without noise by 0; louder by 2^15 without noise: from 8.1 to 20.8, expected 20.8
