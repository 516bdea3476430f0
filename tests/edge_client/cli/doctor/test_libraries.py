"""Libraries are tried in separate processes; each failure is reported with its remedy."""

import sys
from pathlib import Path

import pytest

from edge_client.cli.doctor.libraries import TRIALS, library


def interpreter(folder: Path, *lines: str) -> str:
    """A shell script of these lines that stands in for the Python interpreter."""
    path = folder / "python"
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return str(path)


def test_a_working_library_is_reported_with_its_version() -> None:
    import numpy

    found = library("numpy", sys.executable, "x86_64")
    assert (found.level, found.detail, found.remedy) == ("ok", numpy.__version__, "")


@pytest.mark.parametrize(
    ("name", "machine", "remedy"),
    [
        ("torch", "aarch64", "torch>=2.11"),
        ("onnxruntime", "aarch64", "onnxruntime>=1.22"),
        ("numpy", "aarch64", "OPENBLAS_CORETYPE=ARMV8"),
        ("onnx", "aarch64", "an earlier onnx"),
        ("torch", "x86_64", "an earlier torch"),
    ],
)
def test_an_illegal_instruction_is_reported_with_the_known_remedy_for_the_board(
    tmp_path: Path, name: str, machine: str, remedy: str
) -> None:
    found = library(name, interpreter(tmp_path, "kill -ILL $$"), machine)
    assert found.level == "failure"
    assert "illegal instruction" in found.detail
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("line", "detail"), [("kill -KILL $$", "for memory"), ("kill -SEGV $$", "crashed with SIGSEGV")]
)
def test_other_crashes_are_reported_with_their_signal(tmp_path: Path, line: str, detail: str) -> None:
    found = library("torch", interpreter(tmp_path, line), "aarch64")
    assert found.level == "failure"
    assert detail in found.detail
    assert found.remedy


def missing(name: str) -> str:
    return f"echo \"ModuleNotFoundError: No module named '{name}'\" >&2; exit 1"


@pytest.mark.parametrize(("name", "level"), [("torch", "warning"), ("onnx", "warning"), ("numpy", "failure")])
def test_a_missing_training_library_is_only_a_warning(tmp_path: Path, name: str, level: str) -> None:
    found = library(name, interpreter(tmp_path, missing(name)), "x86_64")
    assert (found.level, found.detail) == (level, "not installed")
    assert "pip install" in found.remedy


def test_a_32_bit_system_is_reported(tmp_path: Path) -> None:
    found = library("torch", interpreter(tmp_path, missing("torch")), "armv7l")
    assert "64-bit operating system" in found.remedy


def test_a_library_that_cannot_be_loaded_is_reported_with_its_own_error(tmp_path: Path) -> None:
    error = "ImportError: libopenblas.so.0: cannot open shared object file"
    found = library("numpy", interpreter(tmp_path, f'echo "{error}" >&2; exit 1'), "aarch64")
    assert (found.level, found.detail) == ("failure", error)


def test_a_missing_interpreter_is_reported(tmp_path: Path) -> None:
    found = library("numpy", str(tmp_path / "nowhere"), "x86_64")
    assert found.level == "failure"
    assert "cannot be run" in found.detail


def test_each_library_that_a_device_uses_is_checked() -> None:
    assert set(TRIALS) == {"torch", "onnxruntime", "onnx", "numpy"}
