"""Libraries are tried in processes of their own: whatever ends these is told, with the remedy."""

import sys
from pathlib import Path

import pytest

from edge_client.cli.doctor.libraries import TRIALS, library


def interpreter(folder: Path, *lines: str) -> str:
    """A program that is called as Python is, and does this instead."""
    path = folder / "python"
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return str(path)


def test_a_library_that_is_there_and_computes_is_told_with_its_version() -> None:
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
def test_an_illegal_instruction_is_told_with_what_is_known_to_work_on_the_board(
    tmp_path: Path, name: str, machine: str, remedy: str
) -> None:
    found = library(name, interpreter(tmp_path, "kill -ILL $$"), machine)
    assert found.level == "failure"
    assert "illegal instruction" in found.detail
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("line", "detail"), [("kill -KILL $$", "for memory"), ("kill -SEGV $$", "crashed with SIGSEGV")]
)
def test_other_ends_are_told_by_their_signal(tmp_path: Path, line: str, detail: str) -> None:
    found = library("torch", interpreter(tmp_path, line), "aarch64")
    assert found.level == "failure"
    assert detail in found.detail
    assert found.remedy


def missing(name: str) -> str:
    return f"echo \"ModuleNotFoundError: No module named '{name}'\" >&2; exit 1"


@pytest.mark.parametrize(("name", "level"), [("torch", "warning"), ("onnx", "warning"), ("numpy", "failure")])
def test_what_only_training_needs_may_be_missing(tmp_path: Path, name: str, level: str) -> None:
    found = library(name, interpreter(tmp_path, missing(name)), "x86_64")
    assert (found.level, found.detail) == (level, "not installed")
    assert "pip install" in found.remedy


def test_a_system_of_32_bits_is_told_to_be_one(tmp_path: Path) -> None:
    found = library("torch", interpreter(tmp_path, missing("torch")), "armv7l")
    assert "64-bit operating system" in found.remedy


def test_a_library_that_cannot_be_loaded_is_told_in_its_own_words(tmp_path: Path) -> None:
    said = "ImportError: libopenblas.so.0: cannot open shared object file"
    found = library("numpy", interpreter(tmp_path, f'echo "{said}" >&2; exit 1'), "aarch64")
    assert (found.level, found.detail) == ("failure", said)


def test_without_an_interpreter_there_is_a_line_all_the_same(tmp_path: Path) -> None:
    found = library("numpy", str(tmp_path / "nowhere"), "x86_64")
    assert found.level == "failure"
    assert "cannot be run" in found.detail


def test_each_library_that_a_device_uses_is_tried() -> None:
    assert set(TRIALS) == {"torch", "onnxruntime", "onnx", "numpy"}
