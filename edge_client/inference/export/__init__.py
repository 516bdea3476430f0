"""A network as ONNX operators apart from its weights: drawn once, filled in wherever the weights are."""
