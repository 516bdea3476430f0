"""The runtimes of the table, each with its pinned packages in an environment of its own."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Environment:
    """A column of the table: the runtime by its name in `RUNTIMES`, and what is installed."""

    title: str
    runtime: str
    packages: tuple[str, ...]


COMMON = ("numpy<3", "pydantic>=2.12", "onnxruntime")  # what the project's own part needs
ENVIRONMENTS = {
    "onnxruntime-1.15": Environment("onnxruntime 1.15.0", "onnxruntime", ("onnxruntime==1.15.0", "numpy<2")),
    "openvino": Environment("OpenVINO 2026.4.1", "openvino", ("openvino==2026.4.1",)),
    "opencv-4": Environment("OpenCV 4.14", "opencv", ("opencv-python-headless==4.14.0.94",)),
    "opencv-5": Environment("OpenCV 5.0", "opencv", ("opencv-python-headless==5.0.0.93",)),
    "mnn": Environment("MNN 3.6.1", "mnn", ("MNN==3.6.1",)),
    "ncnn": Environment("ncnn 1.0.20261020", "ncnn", ("ncnn==1.0.20261020", "pnnx==20261020")),
    "tvm": Environment("TVM 0.27.0.post1", "tvm", ("apache-tvm==0.27.0.post1", "onnx")),
    "litert": Environment("LiteRT 2.1.0, onnx2tf 1.29.24", "litert", ("onnx2tf==1.29.24",)),
}
NODE_MODULES = "node_modules"
NODE = {"onnxruntime-node": "1.30.0", "onnxruntime-web": "1.30.0"}
"""Packages of npm, which `run.mjs` imports."""
BROWSER = "chromium"
TITLES = {
    **{name: f"{name} {version}" for name, version in NODE.items()},
    BROWSER: f"onnxruntime-web {NODE['onnxruntime-web']} in Chromium",
    **{name: each.title for name, each in ENVIRONMENTS.items()},
}
"""The columns of the table, by name and in their order."""


def python_of(name: str, folder: Path) -> Path:
    """The interpreter of an environment, which is made if it is not there."""
    place = folder / name
    python = place / "bin" / "python"
    done = place / ".installed"
    packages = [*ENVIRONMENTS[name].packages, *COMMON]
    if not done.exists() or done.read_text() != " ".join(packages):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        done.write_text(" ".join(packages))
    return python


def node_folder(folder: Path) -> Path:
    """A folder with the packages of npm, which are installed if they are not there."""
    place = folder / "node"
    if not (place / NODE_MODULES).exists():
        place.mkdir(parents=True, exist_ok=True)
        words = [f"{name}@{version}" for name, version in NODE.items()]
        subprocess.run(["npm", "install", "--silent", "--ignore-scripts", *words], cwd=place, check=True)
    return place
