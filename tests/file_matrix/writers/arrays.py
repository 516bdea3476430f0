"""Archives of arrays by numpy, and MATLAB files."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Array, Rows, Truth
from tests.file_matrix.writers.scenes import CLASSES, HEIGHT, KINDS, scene, units

ARRAYS = Rows()
LEVELS = (0.4, 0.5, 1.0, 0.9)
NUMBERS = np.array([0, 0, 1, 1])


def _scenes(kind: str) -> Array:
    return np.stack([KINDS[kind](scene(place, top)) for place, top in enumerate(LEVELS)])


def _truth(pixels: Array, labels: Any = ("0", "0", "1", "1"), **more: Any) -> Truth:
    return Truth(np.stack([units(each) for each in pixels]), labels, **more)


def _archive(kind: str, arrays: dict[str, Array], truth: Truth, **more: Any) -> None:
    """A row of `numpy.savez` with these arrays."""

    @ARRAYS.row(kind, "numpy", "npz:FOLDER/data.npz", truth=truth, **{"requests": "data.npz", **more})
    def write(folder: Path) -> None:
        (np.savez_compressed if "compressed" in kind else np.savez)(folder / "data.npz", **arrays)


GREY, COLOUR, FLOATS = _scenes("grey"), _scenes("colour"), _scenes("float")
_archive("npz, bytes [N, H, W]", {"images": GREY, "labels": NUMBERS}, _truth(GREY))
_archive("npz, compressed", {"images": GREY, "labels": NUMBERS}, _truth(GREY))
_archive("npz, bytes [N, 1, H, W]", {"images": GREY[:, None], "labels": NUMBERS}, _truth(GREY))
_archive("npz, bytes [N, H, W, 1]", {"images": GREY[..., None], "labels": NUMBERS}, _truth(GREY))
_archive("npz, bytes [N, H, W, 3]", {"images": COLOUR, "labels": NUMBERS}, _truth(COLOUR))
_archive(
    "npz, bytes [N, 3, H, W]", {"images": COLOUR.transpose(0, 3, 1, 2), "labels": NUMBERS}, _truth(COLOUR)
)
_archive(
    "npz, bytes in Fortran's order", {"images": np.asfortranarray(COLOUR), "labels": NUMBERS}, _truth(COLOUR)
)
SQUARES = FLOATS[..., :HEIGHT]
_archive("npz, floats [N, H, W]", {"images": SQUARES, "labels": NUMBERS}, _truth(SQUARES))
_archive("npz, floats [N, 1, H, W]", {"images": FLOATS[:, None], "labels": NUMBERS}, _truth(FLOATS))
_archive(
    "npz, floats of 64 bits", {"images": FLOATS[:, None].astype(float), "labels": NUMBERS}, _truth(FLOATS)
)
_archive(
    "npz, floats of 16 bits",
    {"images": FLOATS[:, None].astype("f2"), "labels": NUMBERS},
    _truth(FLOATS.astype("f2")),
)
_archive(
    "npz, floats, big endian", {"images": FLOATS[:, None].astype(">f4"), "labels": NUMBERS}, _truth(FLOATS)
)
_archive("npz, labels of 8 bits", {"images": GREY, "labels": NUMBERS.astype(np.uint8)}, _truth(GREY))
_archive("npz, labels [N, 1]", {"images": GREY, "labels": NUMBERS[:, None]}, _truth(GREY))
_archive("npz, labels as floats", {"images": GREY, "labels": NUMBERS.astype(float)}, _truth(GREY))
_archive("npz, truth values as labels", {"images": GREY, "labels": NUMBERS > 0}, _truth(GREY))
_archive(
    "npz, with names of classes",
    {"images": GREY, "labels": NUMBERS, "class_names": np.array(CLASSES)},
    _truth(GREY, ("dark", "dark", "light", "light")),
)
_archive("npz, labels from 1", {"images": GREY, "labels": NUMBERS + 1}, _truth(GREY, ("1", "1", "2", "2")))
_archive(
    "npz, measured numbers as labels",
    {"images": GREY, "labels": np.array(LEVELS)},
    _truth(GREY, np.array(LEVELS)[:, None], task="regression"),
)
_archive(
    "npz, x_train, y_train as Keras has them",
    {"x_train": GREY[::2], "y_train": NUMBERS[::2], "x_test": GREY, "y_test": NUMBERS},
    _truth(GREY),
    requests="",
    split="test",
)
WINDOWS = np.random.default_rng(5).normal(size=(4, 3, 50)).astype(np.float32)
_archive(
    "npz, signals [N, C, T]", {"images": WINDOWS, "labels": NUMBERS}, Truth(WINDOWS, ("0", "0", "1", "1"))
)


def _single(kind: str, array: Array, truth: Truth) -> None:
    """A row of `numpy.save`, which has no labels to learn."""

    @ARRAYS.row(kind, "numpy", "FOLDER/data.npy", truth=truth, requests="data.npy", paths=("infer", "serve"))
    def write(folder: Path) -> None:
        np.save(folder / "data.npy", array)


_single("npy, floats [N, 1, H, W]", FLOATS[:, None], _truth(FLOATS))
_single("npy, floats [N, H, W]", FLOATS, _truth(FLOATS))
_single("npy, floats of 64 bits", FLOATS.astype(float), _truth(FLOATS))


# MATLAB: four recordings of two signals, as of bearings, in a folder for each class.

SIGNALS = np.random.default_rng(6).normal(size=(4, 2, 40))


def _mat(kind: str, writer: str, save: Any) -> None:
    @ARRAYS.row(
        kind,
        writer,
        "mat:FOLDER?label=label&window=40",
        truth=Truth(SIGNALS, ("dark", "dark", "light", "light"), 1e-5),
    )
    def write(folder: Path) -> None:
        for place, (drive, fan) in enumerate(SIGNALS):
            (folder / CLASSES[place // 2]).mkdir(exist_ok=True)
            save(
                folder / CLASSES[place // 2] / f"{place}.mat",
                {"DE_time": drive[:, None], "FE_time": fan[:, None]},
            )


def _scipy(**how: Any) -> Any:
    def save(path: Path, arrays: dict[str, Array]) -> None:
        from scipy import io

        io.savemat(path, arrays, **how)

    return save


def _hdf5storage(path: Path, arrays: dict[str, Array]) -> None:
    import hdf5storage

    hdf5storage.savemat(str(path), arrays, format="7.3")


def _h5py(path: Path, arrays: dict[str, Array]) -> None:
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array.T).attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


_mat("MATLAB, version 5", "scipy", _scipy())
_mat("MATLAB, version 5, compressed", "scipy", _scipy(do_compression=True))
_mat("MATLAB, version 4", "scipy", _scipy(format="4"))
_mat("MATLAB, version 7.3", "hdf5storage", _hdf5storage)
_mat("MATLAB, version 7.3", "h5py", _h5py)
