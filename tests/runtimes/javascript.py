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

import numpy as np

from edge_client.inference.runtimes import difference
from tests.browser.screen import opened_browser
from tests.runtimes.environments import NODE_MODULES, node_folder
from tests.runtimes.files import BATCHES

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.mjs"
ASK = """async ([stem, shape]) => {
  const { answersOf } = await import("/answers.mjs");
  const runtime = await import("/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
  runtime.env.wasm.numThreads = 1;
  const read = async (path) => (await fetch(path)).arrayBuffer();
  const inputs = new Float32Array(await read(`/${stem}.f32`));
  return [...await answersOf(runtime, new Uint8Array(await read(`/${stem}.onnx`)), inputs, shape)];
}"""

Rows = dict[str, dict[str, object]]
"""By file: the differences at each batch, or the problem."""


def measure_node(name: str, folder: Path, environments: Path) -> Rows:
    """A package's answers in Node."""
    command = ["node", str(HERE / "run.mjs"), name, str(folder)]
    subprocess.run(command, cwd=node_folder(environments), check=False, stdout=subprocess.DEVNULL)

    def read(stem: str) -> np.ndarray:
        return np.fromfile(folder / f"{stem}.{name}.f32", np.float32)

    return _compare(folder, read)


def measure_browser(name: str, folder: Path, environments: Path) -> Rows:
    """onnxruntime-web's answers in Chromium, on WebAssembly."""
    (folder / NODE_MODULES).symlink_to(node_folder(environments) / NODE_MODULES)
    shutil.copyfile(ANSWERS, folder / ANSWERS.name)
    with _served(folder) as url, opened_browser() as new_page:
        page = new_page()
        page.goto(url)

        def ask(stem: str) -> np.ndarray:
            shape = json.loads((folder / f"{stem}.shape.json").read_text())
            return np.array(page.evaluate(ASK, [stem, shape]), np.float32)

        return _compare(folder, ask)


def _compare(folder: Path, answers: Callable[[str], np.ndarray]) -> Rows:
    """The differences of `answers(stem)` [sum of batches * L] from those of onnxruntime."""
    rows: Rows = {}
    for path in sorted(folder.glob("*.onnx")):
        expected = np.load(path.with_suffix(".npz"))["expected"]
        try:
            computed = answers(path.stem).reshape(sum(BATCHES), -1)
        except Exception as error:  # the browser's are its own
            rows[path.stem] = {"problem": " ".join(str(error).split())[:200]}
            continue
        pairs = ((computed[:1], expected[:1]), (computed[1:], expected))
        rows[path.stem] = {"differences": [difference(*pair) for pair in pairs]}
    return rows


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
