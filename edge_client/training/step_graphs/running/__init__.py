"""Trains with step graphs in onnxruntime, without torch."""
