#!/usr/bin/env bash
# Guess: Flower's differential privacy by fixed clipping bounds how far a client moves the weights. An update below the norm
# passes as it is, also of a model with batch normalisation, and each number of the model is clipped, a learned temperature too.
# What happens: the norm is taken of all arrays, and `num_batches_tracked` is one of a state dict's. After 100 batches the
# counter has a norm of 100, and weights that have moved by 1, just what is allowed, move by 0.01: training stands still. And
# single numbers are counted but never clipped: a temperature that moves by 50 does so at a norm of 1. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet flwr==1.42.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import logging

import flwr
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

NORM = 1.0


def moved(change: dict[str, np.ndarray]) -> dict[str, float]:
    """How far two clients that have made the same change move each array, without noise."""
    before = {name: np.zeros_like(array) for name, array in change.items()}
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), noise_multiplier=0, clipping_norm=NORM, num_sampled_clients=2
    )
    wrapped.current_arrays = record(before)
    counted = MetricRecord({"num-examples": 10})
    replies = [
        Message(RecordDict({"arrays": record(change), "metrics": counted}), dst_node_id=0, message_type="train")
        for _ in range(2)
    ]
    arrays, _ = wrapped.aggregate_train(1, replies)
    return {name: round(float(np.linalg.norm(array.numpy())), 4) for name, array in arrays.items()}


def record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: flwr.app.Array(array) for name, array in arrays.items()})


logging.disable()
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
weight = np.full((10, 10), 0.1, np.float32)  # of norm 1
print("flwr", flwr.__version__)
seen = {
    "alone": moved({"weight": weight}),
    "with a counter": moved({"weight": weight, "num_batches_tracked": np.array(100)}),
    "with a temperature": moved({"weight": weight, "temperature": np.array(50, np.float32)}),
    "with a vector of one": moved({"weight": weight, "temperature": np.array([50], np.float32)}),
}
for name, norms in seen.items():
    print(f"{name}: moved by {norms}, allowed {NORM}")
assert abs(seen["alone"]["weight"] - NORM) < 0.001 and seen["with a counter"]["weight"] < 0.02
assert seen["with a temperature"]["temperature"] == 50 and seen["with a vector of one"]["temperature"] < NORM
PYTHON
venv/bin/python try.py
# Seen: alone: weight 1.0; with a counter: weight 0.01, num_batches_tracked 100; with a temperature: weight 0.02, temperature 50
