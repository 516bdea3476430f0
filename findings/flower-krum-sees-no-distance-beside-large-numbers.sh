#!/usr/bin/env bash
# Guess: Flower's Krum, which takes the model that is closest to the others, never takes that of a device whose weights are all off
# by half of their size, while seven others agree within a hundredth. Running variances of a batch normalisation that are
# the same on all devices change nothing, as they add nothing to any distance.
# What happens: distances are computed in the model's float32 as |x|² + |y|² - 2xy, of whole models. With 32 variances of 1000, as
# of raw pixels or pascals, |x|² is 32 million, its last digit is worth 2, and the squared distance of the broken device is
# 2.5: it is taken in some rounds, and with variances of 10000 as often as any other, in one of eight. Nothing is said. With
# variances of 1 or 100 it is never taken.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet flwr==1.42.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import logging

import flwr
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Krum
from flwr.supercore.task_identity import TaskIdentity

DEVICES, ROUNDS = 8, 60


def reply(weight: np.ndarray, variance: float) -> Message:
    arrays = {"weight": weight, "running_var": np.full(32, variance)}
    record = ArrayRecord({name: Array(array.astype(np.float32)) for name, array in arrays.items()})
    content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 10})})
    return Message(content, dst_node_id=0, message_type="train")


def broken_taken(variance: float) -> float:
    """The share of rounds in which the model of the broken device is taken."""
    rng, taken = np.random.default_rng(0), 0
    for number in range(ROUNDS):
        common = rng.normal(0, 0.1, 1000)
        weights = [common + rng.normal(0, 0.001, 1000) for _ in range(DEVICES)]
        weights[number % DEVICES] = common + 0.05
        arrays, _ = Krum(num_malicious_nodes=1).aggregate_train(1, [reply(weight, variance) for weight in weights])
        taken += np.allclose(arrays["weight"].numpy(), common + 0.05, atol=1e-6)
    return round(taken / ROUNDS, 2)


logging.disable()
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
print("flwr", flwr.__version__)
seen = {variance: broken_taken(variance) for variance in (1, 100, 1000, 10_000)}
print("share of rounds in which the broken device's model is taken, by running variance:", seen)
assert seen[1] == seen[100] == 0 and seen[1000] > 0 and seen[10_000] > 0
PYTHON
venv/bin/python try.py
# Seen: taken, by running variance: {1: 0.0, 100: 0.0, 1000: 0.05, 10000: 0.13}
