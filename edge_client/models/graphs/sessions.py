"""Opens graphs in onnxruntime on the processor: the one place that says where training's sessions run."""

from pathlib import Path

import onnxruntime

PROCESSOR = "CPUExecutionProvider"  # onnxruntime's name


def open_on_processor(
    graph: bytes | str | Path, options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    """A session of a graph, or of its file, on the processor alone.

    Training, the filling of graphs and their comparison with torch bind arrays in the processor's memory, and
    their results must be the same on every board. Models that are served take a provider by trial
    (`edge_client/inference/providers`).
    """
    return onnxruntime.InferenceSession(graph, options, providers=[PROCESSOR])
