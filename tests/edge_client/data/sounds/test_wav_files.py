"""WAV files of every coding: the values of libsndfile, or of scipy where it takes a container for packed."""

import io
import struct

import numpy as np
import pytest
import soundfile
from scipy.io import wavfile

from edge_client.data.sounds import sound_files
from edge_client.data.sounds.sound_files import read_sound
from schemas.errors import ConfigError
from tests.edge_client.data.sounds.sound_bytes import pcm, tone, wav_bytes

TONE = tone(440, 0.02)
ARRAY = np.stack([tone(200 * (n + 1), 0.02) for n in range(4)], axis=1)
CODES = bytes(range(256))
WHOLE = np.array([1000, -1000, 2047, -2048])
ODD = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"bext" + struct.pack("<I", 602) + bytes(602)

FILES = {
    **{f"{bits} bits": wav_bytes(pcm(TONE, bits), bits=bits) for bits in (8, 16, 24, 32)},
    **{
        f"{bits} bits, extensible": wav_bytes(pcm(TONE, bits), bits=bits, inner=1) for bits in (8, 16, 24, 32)
    },
    "12 bits": wav_bytes(WHOLE.astype("<i2").tobytes(), bits=12),
    "12 bits in 16": wav_bytes((WHOLE << 4).astype("<i2").tobytes(), inner=1, valid=12),
    "12 bits in 32": wav_bytes(WHOLE.astype("<i4").tobytes(), bits=32, inner=1, valid=12),
    "20 bits in 24": wav_bytes(pcm(TONE, 24), bits=24, inner=1, valid=20),
    "24 bits at the top of 32": wav_bytes((WHOLE << 16).astype("<i4").tobytes(), bits=32, inner=1, valid=24),
    "24 bits at the end of 32": wav_bytes((WHOLE << 8).astype("<i4").tobytes(), bits=32, inner=1, valid=24),
    "float": wav_bytes((2 * TONE).astype("<f4").tobytes(), bits=32, tag=3),
    "float, extensible": wav_bytes(TONE.astype("<f4").tobytes(), bits=32, inner=3),
    "double": wav_bytes(TONE.astype("<f8").tobytes(), bits=64, tag=3),
    "double, extensible": wav_bytes(TONE.astype("<f8").tobytes(), bits=64, inner=3),
    "A-law": wav_bytes(CODES, bits=8, tag=6),
    "A-law, extensible": wav_bytes(CODES, bits=8, inner=6),
    "mu-law": wav_bytes(CODES, bits=8, tag=7),
    "mu-law, extensible": wav_bytes(CODES, bits=8, inner=7),
    "two channels": wav_bytes(pcm(ARRAY[:, :2], 16), channels=2),
    "four channels, extensible": wav_bytes(pcm(ARRAY, 24), channels=4, bits=24, inner=1),
    "chunks before the data": wav_bytes(pcm(TONE, 16), before=ODD),
    "a chunk after the data": wav_bytes(pcm(TONE, 16)) + ODD,
    "RF64": wav_bytes(pcm(TONE, 16), long=b"RF64") + ODD,
    "no size of a frame": wav_bytes(pcm(TONE, 16), frame=0),
    "the largest size": wav_bytes(pcm(TONE, 16), size=0xFFFFFFFF, whole=0xFFFFFFFF),
    "a size beyond the end": wav_bytes(pcm(TONE, 16), size=1000),
    "a sample that is cut off": wav_bytes(bytes(5)),
}


def channels_mean(data: bytes) -> np.ndarray:
    """What libsndfile reads."""
    return soundfile.read(io.BytesIO(data), always_2d=True)[0].mean(axis=1)


@pytest.mark.parametrize("block", [16, sound_files.BLOCK])
@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_samples_are_those_of_libsndfile(data: bytes, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound_files, "BLOCK", block)
    expected = channels_mean(data)
    # No other library is asked.
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    samples = read_sound(io.BytesIO(data)).samples
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, expected, rtol=0, atol=6e-8)


@pytest.mark.parametrize(("bits", "channels"), [(24, 1), (24, 2), (20, 1)])
def test_the_size_of_a_frame_says_how_wide_a_container_is(bits: int, channels: int) -> None:
    # libsndfile takes these for three bytes each: five samples of four, and all of them wrong.
    data = wav_bytes((WHOLE << 16).astype("<i4").tobytes(), bits=bits, channels=channels, frame=4 * channels)
    _, whole = wavfile.read(io.BytesIO(data))
    expected = whole.reshape(-1, channels).mean(axis=1) / 2**31
    np.testing.assert_allclose(read_sound(io.BytesIO(data)).samples, expected, rtol=0, atol=6e-8)


def test_bw64_is_rf64_by_another_name() -> None:
    known, other = (wav_bytes(pcm(TONE, 16), long=kind) + ODD for kind in (b"RF64", b"BW64"))
    assert (read_sound(io.BytesIO(other)).samples == read_sound(io.BytesIO(known)).samples).all()


KILLED = {
    "no sizes": {"size": 0, "whole": 0},
    "the sizes of a header alone": {"size": 0, "whole": 36},
    "the largest sizes": {"size": 0xFFFFFFFF, "whole": 0xFFFFFFFF},
    "a size beyond the end": {"size": 10_000},
    "RF64 without sizes": {"size": 0, "long": b"RF64"},
}


@pytest.mark.parametrize("stated", KILLED.values(), ids=KILLED)
def test_what_a_killed_recorder_or_a_pipe_left_is_read_to_its_end(stated) -> None:
    sound = read_sound(io.BytesIO(wav_bytes(pcm(TONE, 16), **stated)))
    assert sound.unfinished
    np.testing.assert_array_equal(sound.samples, channels_mean(wav_bytes(pcm(TONE, 16))).astype(np.float32))


def test_a_recording_that_says_it_is_empty_is_no_sound_of_the_chunks_behind_it() -> None:
    data = bytearray(wav_bytes(b"") + ODD)
    data[4:8] = struct.pack("<I", len(data) - 8)
    with pytest.raises(ConfigError, match="the body has no samples"):
        read_sound(io.BytesIO(bytes(data)))


DAMAGED = [
    (wav_bytes(b"\0"), "the body has no samples"),
    (wav_bytes(b""), "the body has no samples"),
    (wav_bytes(b"")[:30], "the body has no samples"),
    (wav_bytes(bytes(8))[:12] + b"data" + bytes(12), "the body has samples before their format"),
    (wav_bytes(bytes(50), bits=40), "the body has 1 channels of 40 bits in frames of 5 bytes"),
    (wav_bytes(bytes(260), channels=65), "the body has 65 channels"),
    (wav_bytes(bytes(8), channels=0), "the body has 0 channels"),
    (wav_bytes(bytes(8), bits=16, tag=3), "the body has 1 channels of 16 bits"),
    (wav_bytes(bytes(8), rate=0), "the body has 0 Hz: expected 1000 to 768000"),
    (wav_bytes(pcm(TONE, 16), rate=3), "the body has 3 Hz: expected 1000 to 768000"),
    (wav_bytes(np.array([0, np.nan], "<f4").tobytes(), bits=32, tag=3), "the body has samples that are not"),
]


@pytest.mark.parametrize(("data", "message"), DAMAGED)
def test_a_damaged_file_says_what_it_has(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_sound(io.BytesIO(data), rate=16_000)
