"""Files of writers that have not finished, or never will: half lines, zero bytes, broken files."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Rows, Truth, refused
from tests.file_matrix.writers.scenes import KINDS, scene, units
from tests.file_matrix.writers.sensors import COLUMNS, ROWS, SENSORS, WITHOUT_LAST
from tests.file_matrix.writers.tones import RATE, SECONDS, in_examples, tone

INTERRUPTED = Rows()
LINES = [",".join(map(str, row)) for row in (COLUMNS, *ROWS)]


def _text(
    kind: str, data: bytes, truth: Truth, name: str = "log.csv", kind_of_source: str = "csv", **more: Any
) -> None:
    @INTERRUPTED.row(kind, "as a logger", f"{kind_of_source}:FOLDER/{name}?label=state", truth=truth, **more)
    def write(folder: Path) -> None:
        (folder / name).write_bytes(data)


WHOLE = "\n".join([*LINES, ""]).encode()
_text("CSV, half a class in the last line", WHOLE[:-3], WITHOUT_LAST)
_text("CSV, half a number in the last line", WHOLE[: WHOLE.rindex(b"\n", 0, -1) + 4], WITHOUT_LAST)
_text("CSV, the last line lacks its end", WHOLE[:-1], WITHOUT_LAST)
_text("CSV, zero bytes at the end", WHOLE + bytes(512), SENSORS)
_text("CSV, half a line and zero bytes", WHOLE[:-3] + bytes(100), WITHOUT_LAST)
_text("CSV, only a header yet", WHOLE[: WHOLE.index(b"\n") + 1], SENSORS, intended=refused("has no rows"))
_text("CSV, empty", b"", SENSORS, intended=refused("has no rows"))
_text(
    "JSON lines, half an object",
    b'{"x": 18.25, "state": "free"}\n{"x": 18.5, "state": "busy"}\n{"x": 21.7',
    Truth(SENSORS.inputs[:2, :1], ("free", "busy")),
    "log.jsonl",
    "jsonl",
)


def _pictures(kind: str, damage: Any) -> None:
    """Twelve pictures, of which one is damaged: the others are used."""

    @INTERRUPTED.row(kind, "as a camera", "folder:FOLDER")
    def write(folder: Path) -> Truth:
        from PIL import Image

        inputs, labels = [], []
        for label, top in (("dark", 0.4), ("light", 1.0)):
            (folder / label).mkdir()
            for number in range(6):
                path, pixels = folder / label / f"{number}.png", KINDS["colour"](scene(number, top))
                Image.fromarray(pixels).save(path)
                if (label, number) == ("dark", 2):
                    path.write_bytes(damage(path.read_bytes()))
                else:
                    inputs.append(units(pixels))
                    labels.append(label)
        return Truth(np.stack(inputs), labels)


_pictures("PNG, one of twelve cut off", lambda data: data[: len(data) // 2])
_pictures("PNG, one of twelve empty", lambda data: b"")
_pictures("PNG, one of twelve zero bytes", lambda data: bytes(len(data)))


def _recordings(kind: str, damage: Any) -> None:
    """Twelve recordings, of which one is damaged: the others are used."""

    @INTERRUPTED.row(kind, "as a recorder", f"wav:FOLDER?seconds={SECONDS}")
    def write(folder: Path) -> Truth:
        import soundfile

        inputs, labels = [], []
        for label, hertz in (("high", 1100), ("low", 300)):
            (folder / label).mkdir()
            for number in range(6):
                path = folder / label / f"{number}.wav"
                soundfile.write(path, tone(hertz + number), RATE, subtype="PCM_16")
                if (label, number) == ("low", 3):
                    path.write_bytes(damage(path.read_bytes()))
                else:
                    inputs.append(in_examples(soundfile.read(path)[0]))
                    labels.append(label)
        return Truth(np.concatenate(inputs), labels)


_recordings("WAV, one of twelve empty", lambda data: b"")
_recordings("WAV, one of twelve only a header", lambda data: data[:44])
_recordings("WAV, one of twelve no sound", lambda data: b"not a recording" * 20)
_recordings(
    "WAV, one of twelve being recorded", lambda data: data[:4] + bytes(4) + data[8:40] + bytes(4) + data[44:]
)
