"""Folders of classes, as programs arrange them: their parts, and what they put beside the data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Array, Rows, Truth
from tests.file_matrix.writers.scenes import KINDS, scene, units
from tests.file_matrix.writers.tones import CLASSES as PITCHES
from tests.file_matrix.writers.tones import RATE, SECONDS, in_examples, tone

FOLDERS = Rows()
CLASSES = ("cat", "dog")


def _picture(path: Path, top: float = 1.0, number: int = 0) -> Array:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = KINDS["colour"](scene(number, top))
    Image.fromarray(pixels).save(path)
    return units(pixels)


def _tree(
    kind: str,
    program: str,
    parts: Sequence[str] = ("",),
    *,
    beside: Sequence[str] = (),
    name: str = "{number}.png",
    split: str = "train",
    **more: Any,
) -> None:
    """Pictures of two classes in each of the `parts`, and further files called `beside`.

    A further file that ends like a picture is one, of another brightness; any other holds a few bytes. With
    several parts `infer` reads the last one, training by default the first.
    """
    meant = parts[0] if split == "train" else parts[-1]
    if len(parts) > 1 and split == "train":
        more["paths"] = ("training",)

    @FOLDERS.row(kind, f"as {program}", "folder:FOLDER", split=split, **more)
    def write(folder: Path) -> Truth:
        inputs, labels = [], []
        for part in parts:
            for place, label in enumerate(CLASSES, parts.index(part)):
                for number in range(2):
                    path = folder / part / label / name.format(number=number, label=label)
                    pixels = _picture(path, 0.3 + 0.2 * place, number)
                    if part == meant:
                        inputs.append(pixels)
                        labels.append(label)
        for other in beside:
            (folder / other).parent.mkdir(parents=True, exist_ok=True)
            if Path(other).name.startswith("._") or not other.endswith((".png", ".jpg")):
                (folder / other).write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X")
            else:
                _picture(folder / other, 0.2)
        return Truth(np.stack(inputs), labels)


_tree("train, test", "Kaggle", ("train", "test"))
_tree("train, test: the part for tests", "Kaggle", ("train", "test"), split="test")
_tree("train, validation", "Keras", ("train", "validation"))
_tree("train, validation: the part for tests", "Keras", ("train", "validation"), split="test")
_tree("training, testing", "Teachable Machine", ("training", "testing"))
_tree(
    "training, testing, info.labels",
    "Edge Impulse",
    ("training", "testing"),
    name="{label}.{number}.png",
    beside=["info.labels"],
)
_tree("train, val", "Ultralytics", ("train", "val"))
_tree("train, val, test", "Ultralytics", ("train", "val", "test"))
_tree("train, valid, test", "Roboflow", ("train", "valid", "test"), beside=["README.roboflow.txt"])
_tree("Train, Test", "a person", ("Train", "Test"))
_tree("folders of classes", "Teachable Machine")
_tree(
    "._ files and .DS_Store",
    "macOS",
    beside=["cat/._0.png", "dog/._1.png", ".DS_Store", "cat/.DS_Store", "__MACOSX/cat/._0.png"],
)
_tree("@eaDir", "Synology", beside=["cat/@eaDir/0.png/SYNOPHOTO_THUMB_M.jpg", "@eaDir/cat/0.jpg"])
_tree(".thumbnails", "Android", beside=[".thumbnails/0.png", "cat/.thumbnails/1.jpg"])
_tree(
    ".ipynb_checkpoints",
    "Jupyter",
    beside=[".ipynb_checkpoints/0-checkpoint.png", "cat/.ipynb_checkpoints/0-checkpoint.png"],
)
_tree(
    "Thumbs.db, desktop.ini",
    "Windows",
    beside=[
        "cat/Thumbs.db",
        "desktop.ini",
        "$RECYCLE.BIN/0.png",
        "System Volume Information/IndexerVolumeGuid",
    ],
)
_tree("lost+found", "a card with ext4", beside=["lost+found/0.png"])
_tree(".git, .gitattributes", "git", beside=[".git/HEAD", ".gitattributes", ".git/objects/0.png"])
_tree("notes beside the classes", "a person", beside=["notes.txt", "cat/notes.txt", "labels.csv"])
_tree("names with spaces and umlauts", "a phone", name="Käfer auf der Tür {number}.png")


def _speech(kind: str, program: str, *, beside: Sequence[str], parts: Sequence[str] = ("",)) -> None:
    """Recordings of two classes, of which the first part is meant, and further recordings or lists."""

    @FOLDERS.row(kind, f"as {program}", f"wav:FOLDER?seconds={SECONDS}")
    def write(folder: Path) -> Truth:
        import soundfile

        inputs, labels = [], []
        for part in parts:
            for label in sorted(PITCHES):
                for number in range(2):
                    path = folder / part / label / f"0a7c2a8d_nohash_{number}.wav"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    soundfile.write(path, tone(PITCHES[label] + number), RATE, subtype="PCM_16")
                    if part == parts[0]:
                        inputs.append(in_examples(soundfile.read(path)[0]))
                        labels.append(label)
        for other in beside:
            (folder / other).parent.mkdir(parents=True, exist_ok=True)
            if other.endswith(".wav") and not Path(other).name.startswith("._"):
                soundfile.write(folder / other, np.zeros(8 * RATE), RATE, subtype="PCM_16")
            else:
                (folder / other).write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X")
        return Truth(np.concatenate(inputs), labels)


_speech(
    "_background_noise_, lists",
    "Speech Commands",
    beside=["_background_noise_/running_tap.wav", "validation_list.txt", "testing_list.txt", "LICENSE"],
)
_speech(
    "recordings, training and testing", "Edge Impulse", beside=["info.labels"], parts=("training", "testing")
)
_speech("recordings, ._ files", "macOS", beside=["low/._0.wav", ".DS_Store"])
_speech("recordings, @eaDir", "Synology", beside=["@eaDir/low/0.wav", "low/@eaDir/0.wav"])
