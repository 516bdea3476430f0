"""Training without torch: a step's forward and backward pass as one ONNX graph, run by onnxruntime."""
