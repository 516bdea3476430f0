"""ONNX export in two steps: the graph without weights, drawn once, and the weights filled in anywhere."""
