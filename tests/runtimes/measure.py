"""One runtime's answers for a folder of files: `python -m tests.runtimes.measure RUNTIME FOLDER`.

It runs in the environment of that runtime. Beside each `NAME.onnx` is `NAME.npz`, with `inputs` [32, ...]
and onnxruntime's outputs: see `expected`. A line of JSON is printed for each file.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edge_client.inference.runtimes import RUNTIMES, TOLERANCE, difference, run_elsewhere

BATCHES = (1, 32)
PIXELS = 0.5  # by which corners of the same box may differ
Outputs = Sequence[np.ndarray]
"""`logits` [N, L], and of a detector K boxes [K, 4], scores [K], classes [K] and pictures [K]."""


def expected(path: Path, batch: int) -> Outputs:
    """What onnxruntime gives for so many examples."""
    arrays = np.load(path.with_suffix(".npz"))
    return [arrays[name] for name in arrays.files if name.startswith(f"{batch} ")]


def common_boxes(found: Outputs, wanted: Outputs) -> list[int]:
    """How many boxes of both are the same by picture, class, score and corners, and how many there are."""
    ours, theirs = (
        np.column_stack([pictures, classes, scores, boxes])
        for _, boxes, scores, classes, pictures in (found, wanted)
    )
    limits = np.array([0, 0, TOLERANCE, *[PIXELS] * 4])
    same = 0
    for number in np.unique(theirs[:, 0]):
        one, other = (rows[rows[:, 0] == number] for rows in (ours, theirs))
        same += int((np.abs(other[:, None] - one) <= limits).all(2).any(1).sum())
    return [same, max(len(ours), len(theirs))]


def compare(answer: Callable[[], Sequence[Outputs]], wanted: Sequence[Outputs]) -> dict[str, object]:
    """The differences of the answers at each batch, and the boxes in common at the last, or the problem."""
    try:
        answers = answer()
        found = [difference(one[0], other[0]) for one, other in zip(answers, wanted, strict=True)]
        boxes = {"boxes": common_boxes(answers[-1], wanted[-1])} if len(wanted[-1]) > 1 else {}
    except Exception as error:  # each runtime has classes of its own
        return {"problem": " ".join(str(error).split())[:200]}
    return {"differences": found, **boxes}


def measure_file(runtime: str, path: Path) -> dict[str, object]:
    """The differences of what the runtime reads of the file."""
    inputs = np.load(path.with_suffix(".npz"))["inputs"]
    read = None if RUNTIMES[runtime].reads_boxes else 1

    def answer() -> list[Outputs]:
        with run_elsewhere(runtime, path, inputs.shape[1:]) as run:
            return [run(inputs[:batch]) for batch in BATCHES]

    return compare(answer, [expected(path, batch)[:read] for batch in BATCHES])


def in_a_process(runtime: str, path: Path) -> dict[str, object]:
    """`measure_file` in a process of its own, for a runtime may end it."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, json.dumps(measure_file(runtime, path)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"problem": f"the process ended with {status}"}


def main(runtime: str, folder: Path) -> None:
    RUNTIMES[runtime].check_installed()
    for path in sorted(folder.glob("*.onnx")):
        print(json.dumps({"file": path.stem, **in_a_process(runtime, path)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
