"""onnxruntime's packages of npm: their answers in Node, and in Chromium that is served from loopback."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from tests.browser.screen import opened_browser
from tests.runtimes.environments import NODE_MODULES, node_folder
from tests.runtimes.measure import BATCHES, Outputs, compare, expected

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.mjs"
ASK = """async ([stem, shape]) => {
  const { answersOf } = await import("/answers.mjs");
  const runtime = await import("/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
  runtime.env.wasm.numThreads = 1;
  const read = async (path) => (await fetch(path)).arrayBuffer();
  const inputs = new Float32Array(await read(`/${stem}.f32`));
  return await answersOf(runtime, new Uint8Array(await read(`/${stem}.onnx`)), inputs, shape);
}"""

Rows = dict[str, dict[str, object]]
"""By file: the differences at each batch, or the problem."""
Answers = list[list[dict[str, Any]]]
"""Of each batch the outputs, as `dims` and `data`."""


def measure_node(name: str, folder: Path, environments: Path) -> Rows:
    """A package's answers in Node."""
    command = ["node", str(HERE / "run.mjs"), name, str(folder)]
    subprocess.run(command, cwd=node_folder(environments), check=False, stdout=subprocess.DEVNULL)

    return _compare(folder, lambda stem: json.loads((folder / f"{stem}.{name}.json").read_text()))


def measure_browser(name: str, folder: Path, environments: Path) -> Rows:
    """onnxruntime-web's answers in Chromium, on WebAssembly."""
    (folder / NODE_MODULES).symlink_to(node_folder(environments) / NODE_MODULES)
    shutil.copyfile(ANSWERS, folder / ANSWERS.name)
    with _served(folder) as url, opened_browser() as new_page:
        page = new_page()
        page.goto(url)

        def ask(stem: str) -> Answers:
            shape = json.loads((folder / f"{stem}.shape.json").read_text())
            answers: Answers = page.evaluate(ASK, [stem, shape])
            return answers

        return _compare(folder, ask)


def _compare(folder: Path, answers: Callable[[str], Answers]) -> Rows:
    """The differences of `answers(stem)` from those of onnxruntime."""

    def read(stem: str) -> list[Outputs]:
        return [
            [np.array(each["data"], np.float32).reshape(each["dims"]) for each in outputs]
            for outputs in answers(stem)
        ]

    return {
        path.stem: compare(partial(read, path.stem), [expected(path, batch) for batch in BATCHES])
        for path in sorted(folder.glob("*.onnx"))
    }


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The address of a server of the folder's files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
