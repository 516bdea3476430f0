"""Which of onnxruntime's execution providers runs a served model: tried in a process of its own."""
