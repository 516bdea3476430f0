"""Versions made without a run: small ONNX networks, signed and entered like those of a run."""

import json
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from edge_client.data.sources import load_source
from edge_server.releases.registry.registry import Registry, TierModel, Version
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.security.signing_key import Signer, load_or_make_signing_key
from schemas.security.manifest import decode_manifest, manifest_path
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import digest_of

PROVENANCE = {"round": "3", "tier": "1", "prune_ratio": "0.5", "parent_sha256": "0" * 64}


def classifier(path: Path, weights: np.ndarray) -> Path:
    """A one-layer network for digits, [N, 1, 8, 8] -> [N, 10]; the last row of `weights` is the bias."""
    weight, bias = (part.astype(np.float32) for part in (weights[:-1], weights[-1]))
    node = [
        helper.make_node("Flatten", ["input"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weight", "bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        node,
        "digits",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [
            helper.make_tensor("weight", TensorProto.FLOAT, (64, 10), weight.ravel()),
            helper.make_tensor("bias", TensorProto.FLOAT, (10,), bias),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    metadata = {"input.shape": json.dumps([1, 8, 8]), "preprocessing": json.dumps({"scale": 16.0})}
    helper.set_model_props(model, metadata)
    path.write_bytes(model.SerializeToString())
    return path


def fitted() -> np.ndarray:
    """Weights [65, 10] by least squares; they classify nine in ten of the shipped digits correctly."""
    data = load_source("digits")
    inputs = np.concatenate([data.images.reshape(len(data), 64) / 16.0, np.ones((len(data), 1))], axis=1)
    found: np.ndarray = np.linalg.lstsq(inputs, np.eye(10)[data.labels], rcond=None)[0]
    return found


def entered(
    registry: Registry,
    name: str,
    weights: np.ndarray | bytes,
    signer: Signer | None,
    *,
    federation: str = "home",
) -> Version:
    """Enter a classifier of digits with these weights, or any file."""
    staging = registry.folder / "staging"
    staging.mkdir(parents=True, exist_ok=True)
    path = staging / "tier-1.onnx"
    if isinstance(weights, bytes):
        path.write_bytes(weights)
    else:
        classifier(path, weights)
    manifest_path(path).unlink(missing_ok=True)
    ManifestSigner(federation, name, signer).export(path, PROVENANCE, SubModelSpec())
    signed = decode_manifest(manifest_path(path).read_bytes()) if signer else None
    data = path.read_bytes()
    version = Version(
        version=name,
        federation=federation,
        run=name,
        round=3,
        rounds=3,
        outcome="finished",
        model="one-layer",
        parameters=650,
        key=signed.key if signed else None,
        created_at=time.time(),
        tiers=(TierModel(tier=1, ratio=0.5, sha256=digest_of(data), bytes=len(data)),),
    )

    def fill(folder: Path) -> None:
        for source in (path, manifest_path(path)):
            if source.exists():
                (folder / source.name).write_bytes(source.read_bytes())
        if signer is not None:
            (folder / "signing.pub").write_text(signer.public_text)
        (folder / "README.md").write_text(f"# {name}\n")

    registry.enter(version, fill)
    return version


def key_in(folder: Path) -> Signer:
    return load_or_make_signing_key(folder / "signing.key")
