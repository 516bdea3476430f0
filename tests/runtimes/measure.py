"""One runtime's answers for a folder of files: `python -m tests.runtimes.measure RUNTIME FOLDER`.

It runs in an environment with that runtime alone. Beside each `NAME.onnx` is `NAME.npz`, with `inputs`
[32, ...] and onnxruntime's `expected`. A line of JSON is printed for each file.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

from edge_client.inference.runtimes import RUNTIMES, difference, run_elsewhere

BATCHES = (1, 32)


def measure_file(runtime: str, path: Path) -> dict[str, object]:
    """The differences at each batch, or why there are none."""
    arrays = np.load(path.with_suffix(".npz"))
    inputs, expected = arrays["inputs"], arrays["expected"]
    try:
        with run_elsewhere(runtime, path, inputs.shape[1:]) as run:
            found = [difference(run(inputs[:batch]), expected[:batch]) for batch in BATCHES]
    except Exception as error:  # each runtime has classes of its own
        return {"problem": " ".join(str(error).split())[:200]}
    return {"differences": found}


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
