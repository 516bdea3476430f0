"""The wire format does not change: the stored files were written by programs that are still deployed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from schemas.base import Frozen
from schemas.messages import MESSAGES, decode_message, decode_task, encode_message
from schemas.messages.presence import Shown
from schemas.security.manifest import SignedManifest, content_digest
from schemas.strategy import StrategySpec
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.chunks import Chunk, decode_chunk, digest_of, encode_chunk
from tests.groups import decode_groups, encode_groups
from tests.schemas import examples

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
CHUNK_DATA = b"sixteen bytes..."
TASKS = {"train-task": examples.TRAIN_TASK, "deliver-task": examples.DELIVER_TASK}
EXAMPLES = {kind: message for kind, message in examples.MESSAGES_BY_KIND.items() if kind != "task"} | TASKS
LATER = (
    *("epoch", "own", "own_model", "personalise", "alone", "by_class", "statistics"),
    *("trained", "frozen", "adapters"),
)
"""Fields of tasks that are written only if they are set: stored tasks keep their digests."""
UNSET = {
    "train-task": {"trial", "provenance", *LATER},
    "deliver-task": {"personal", "returned", "masking", "uplink", "training", *LATER},
    "birth": {"labels", "model", "can"},
    "update": {"drift", "receipt"},
    "site-sum": {"lost"},
    "site-terms": {"parts", "epoch"},
    "sum-request": {"epoch"},
    "round-announcement": {"epoch"},
    "federation-end": {"epoch"},
    "acknowledgement": {"epoch"},
    "refusal": {"epoch"},
    "lease": {"served"},
    "broadcast-end": {"epoch"},
    "mask-cohort": {"epoch"},
    "entrusted-shares": {"epoch"},
    "unmask-request": {"epoch"},
}
VALUES: dict[str, Frozen] = {
    "strategy-spec": examples.STRATEGY,
    "sub-model-spec": examples.SPEC,
    "channel-map": examples.CHANNEL_MAP,
    "signed-manifest": examples.SIGNED,
    "data-card-of-a-table": examples.TABLE_CARD,
    "preprocessing-of-a-table": examples.OF_A_TABLE,
}


def assert_unchanged(name: str, value: object) -> None:
    """Compare `value`, as readable JSON, with the stored file `name`."""
    path, text = GOLDEN / f"{name}.json", json.dumps(value, indent=2) + "\n"
    if UPDATE:
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    stored = path.read_text() if path.exists() else "(the file does not exist)\n"
    assert text == stored, (
        f"the wire format of '{name}' differs from {path}. Deployed programs use the stored format. If the"
        " change is intended (and PROTOCOL has been increased if it breaks them), update the files with"
        " UPDATE_GOLDEN=1 python -m pytest tests/schemas/test_golden.py and commit them."
    )


def test_the_examples_cover_exactly_the_message_kinds():
    assert examples.MESSAGES_BY_KIND.keys() == MESSAGES.keys()
    assert all(isinstance(message, MESSAGES[kind]) for kind, message in examples.MESSAGES_BY_KIND.items())


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_sets_every_field(name):
    message = EXAMPLES[name]
    # A later text that is only shown is left out of a message where it is empty.
    shown = {
        field
        for field, info in type(message).model_fields.items()
        if info.exclude_if and any(isinstance(mark, Shown) for mark in info.metadata)
    }
    fields = type(message).model_fields.keys() - UNSET.get(name, set()) - shown
    assert all(getattr(message, field) not in (None, "", {}, ()) for field in fields)


@pytest.mark.parametrize("name", EXAMPLES)
def test_messages_keep_their_wire_format(name):
    assert_unchanged(name, json.loads(encode_message(EXAMPLES[name])))


@pytest.mark.parametrize("name", EXAMPLES)
def test_stored_messages_can_still_be_decoded(name):
    assert decode_message((GOLDEN / f"{name}.json").read_bytes()) == EXAMPLES[name]


# The files of both tasks and these digests were written by a version with one class for both tasks.
DIGESTS = {
    "train-task": "aaab2fc2276ccceebfed9c075d63d8627708ece336756f6d307d492518f7a505",
    "deliver-task": "45c7a6074c8577c0f9173d589c1b779fb76d629f1163f872e96011c934c6794b",
}


@pytest.mark.parametrize("name", TASKS)
def test_a_stored_task_has_the_digest_that_was_signed(name):
    assert content_digest(decode_task((GOLDEN / f"{name}.json").read_bytes())) == DIGESTS[name]


def test_fields_of_the_other_kind_of_task_are_ignored():
    # "task.json" was written by the same version: a training task that also has a trial and provenance.
    assert decode_message((GOLDEN / "task.json").read_bytes()) == examples.TRAIN_TASK
    fields = {**json.loads(encode_message(examples.DELIVER_TASK)), "training": {"local_epochs": 1}}
    assert decode_message(json.dumps(fields).encode()) == examples.DELIVER_TASK


@pytest.mark.parametrize("decode", [decode_message, decode_task])
def test_a_task_without_an_action_is_a_training_task(decode):
    fields = json.loads(encode_message(examples.TRAIN_TASK))
    del fields["action"]
    assert decode(json.dumps(fields).encode()) == examples.TRAIN_TASK


def test_an_update_with_a_receipt_keeps_its_wire_format():
    assert_unchanged("update-at-a-site", json.loads(encode_message(examples.UPDATE_AT_A_SITE)))
    assert decode_message((GOLDEN / "update-at-a-site.json").read_bytes()) == examples.UPDATE_AT_A_SITE


@pytest.mark.parametrize("name", VALUES)
def test_values_keep_their_wire_format(name):
    assert_unchanged(name, VALUES[name].model_dump(mode="json"))


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("strategy-spec", StrategySpec),
        ("sub-model-spec", SubModelSpec),
        ("channel-map", ChannelMap),
        ("signed-manifest", SignedManifest),
    ],
)
def test_stored_values_can_still_be_decoded(name, model):
    assert model.model_validate_json((GOLDEN / f"{name}.json").read_bytes()) == VALUES[name]


def test_blobs_and_frames_keep_their_bytes():
    frame = encode_chunk(digest_of(CHUNK_DATA), 3, CHUNK_DATA)
    assert_unchanged(
        "bytes", {"chunk-frame": frame.hex(), "groups-sha256": digest_of(encode_groups(examples.GROUPS))}
    )


def test_stored_frames_can_still_be_decoded():
    stored = json.loads((GOLDEN / "bytes.json").read_text())
    prefix = digest_of(CHUNK_DATA)[:16]
    assert decode_chunk(bytes.fromhex(stored["chunk-frame"])) == Chunk(prefix, 3, CHUNK_DATA)


def test_stored_blobs_can_still_be_decoded():
    (GOLDEN / "groups.safetensors").write_bytes(encode_groups(examples.GROUPS)) if UPDATE else None
    data = (GOLDEN / "groups.safetensors").read_bytes()
    assert digest_of(data) == json.loads((GOLDEN / "bytes.json").read_text())["groups-sha256"]
    groups = decode_groups(data)
    assert groups.keys() == examples.GROUPS.keys()
    for group, arrays in examples.GROUPS.items():
        assert groups[group].keys() == arrays.keys()
        assert all(np.array_equal(groups[group][name], array) for name, array in arrays.items())


def test_every_stored_file_belongs_to_a_known_kind():
    known = {*MESSAGES, *TASKS, *VALUES, "bytes", "groups", "update-at-a-site"}
    assert {path.stem for path in GOLDEN.iterdir()} == known
