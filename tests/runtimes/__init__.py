"""Exported files in other runtimes than onnxruntime: their answers beside its own, as a table."""
