"""ONNX files without the onnx package: messages, checks of files from elsewhere, filling with weights."""
