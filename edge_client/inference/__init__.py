"""ONNX models on a device: export, quantization, slots, inference and the inference service."""
