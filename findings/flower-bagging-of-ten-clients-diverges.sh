#!/usr/bin/env bash
# Guess: Flower's FedXgbBagging makes of the trees that clients train beside each other a forest: what ten clients with the
# same data give is what one of them gives, or at least no worse.
# What happens: all their trees are added, each with the whole learning rate. With XGBoost's own rate of 0.3, three clients
# learn three times as fast; of seven and more the sum overshoots, and the error grows from round to round: of ten it is 15, 29 and
# 57, where the mean alone has 8 and one client goes from 6 to 3. Nothing is said. At a tenth of the rate, ten do as one does.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet flwr==1.42.0 xgboost-cpu==3.2.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import logging

import flwr
import numpy as np
import xgboost
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedXgbBagging
from flwr.supercore.task_identity import TaskIdentity

ROUNDS = 3
rows = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
target = 100 + 10 * rows[:, 0]
DATA = xgboost.DMatrix(rows, label=target, nthread=1)


def reply(everyones: bytes, rate: float) -> Message:
    """What a client answers: the tree that it has added to the model of all."""
    booster = xgboost.Booster({"eta": rate, "max_depth": 2, "nthread": 1}, [DATA])
    if everyones:
        booster.load_model(bytearray(everyones))
    rounds = booster.num_boosted_rounds()
    booster.update(DATA, rounds)
    trees = np.frombuffer(booster[rounds:].save_raw("json"), np.uint8)
    content = RecordDict({"arrays": ArrayRecord([trees]), "metrics": MetricRecord({"num-examples": len(rows)})})
    return Message(content, dst_node_id=0, message_type="train")


def errors(clients: int, rate: float = 0.3) -> list[float]:
    """The mean error after each round in which clients with the same data have taken part."""
    strategy, found = FedXgbBagging(), []
    strategy.current_bst = b""
    for number in range(ROUNDS):
        strategy.aggregate_train(number + 1, [reply(strategy.current_bst, rate) for _ in range(clients)])
        everyones = xgboost.Booster(model_file=bytearray(strategy.current_bst))
        found.append(round(float(np.abs(everyones.predict(DATA) - target).mean()), 1))
    return found


logging.disable()
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
print("flwr", flwr.__version__, "xgboost", xgboost.__version__)
spread = round(float(np.abs(target - target.mean()).mean()), 1)
seen = {clients: errors(clients) for clients in (1, 3, 10)}
divided = errors(10, rate=0.03)
print(f"mean error of the mean: {spread}; after each round by clients: {seen}; ten at a tenth of the rate: {divided}")
assert seen[1] == sorted(seen[1], reverse=True) and seen[3][0] < seen[1][0] < spread
assert seen[10] == sorted(seen[10]) and seen[10][0] > spread and seen[10][2] > 3 * seen[10][0]
assert np.abs(np.array(divided) - seen[1]).max() < 0.5
PYTHON
OMP_NUM_THREADS=1 venv/bin/python try.py
# Seen: mean error of the mean: 7.7; by clients: {1: [5.5, 4.0, 2.9], 3: [2.6, 2.1, 1.8], 10: [14.9, 29.2, 57.0]}
