"""Writes 100 of the shipped digits, with labels, as `edge-client infer` takes them: digits.py FILE.npz."""

import sys

import numpy as np

from edge_client.data.sources import load_source

some = load_source("digits").subset(range(100))
np.savez(sys.argv[1], images=some.images, labels=some.labels)
