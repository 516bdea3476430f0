"""matplotlib with a backend that opens no window."""

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

DPI = 130

__all__ = ["DPI", "plt"]
