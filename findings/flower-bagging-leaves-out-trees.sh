#!/usr/bin/env bash
# Guess: Flower's FedXgbBagging takes into the model all trees that a client has trained, also where it trains for several rounds
# before it answers, and each tree stays with the class that it was trained for.
# What happens: only the first tree of each answer is taken. Of three clients that train three rounds of one tree, 5 trees of 9
# arrive: all of the client that answers first in the first round, one of each other. Of three classes, each tree taken
# is that of the first class, so that the others learn from one client's first round alone. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet flwr==1.42.0 xgboost-cpu==3.2.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import json
import logging
from collections import Counter

import flwr
import numpy as np
import xgboost
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedXgbBagging
from flwr.supercore.task_identity import TaskIdentity

CLIENTS, SETTINGS = 3, {"max_depth": 2, "nthread": 1, "eta": 0.1}
rows = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
classes = (np.abs(rows[:, 0]) > 0.6).astype(int) + (np.abs(rows[:, 1]) > 0.6)
DATA = xgboost.DMatrix(rows, label=classes, nthread=1)


def train(everyones: bytes, rounds: int, **settings: str | int) -> xgboost.Booster:
    """What a client adds to the model of all, if there is one, in some rounds."""
    booster = xgboost.Booster(SETTINGS | settings, [DATA])
    if everyones:
        booster.load_model(bytearray(everyones))
    before = booster.num_boosted_rounds()
    for number in range(before, before + rounds):
        booster.update(DATA, number)
    return booster[before:]


def federate(times: int, rounds: int, **settings: str | int) -> xgboost.Booster:
    """The model of clients that answer some times with the trees of some rounds each."""
    strategy = FedXgbBagging()
    strategy.current_bst = b""
    for number in range(times):
        new = train(strategy.current_bst, rounds, **settings).save_raw("json")
        arrays = ArrayRecord([np.frombuffer(new, np.uint8)])
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": len(rows)})})
        strategy.aggregate_train(number + 1, [Message(content, dst_node_id=0, message_type="train")] * CLIENTS)
    return xgboost.Booster(model_file=bytearray(strategy.current_bst))


def describe(booster: xgboost.Booster) -> tuple[list[int], float]:
    """How many trees each class has, and the share of rows with the right class."""
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    counts = Counter(model["tree_info"])
    right = booster.predict(DATA).argmax(1) == classes
    return [counts[number] for number in range(3)], round(float(right.mean()), 2)


logging.disable()
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
print("flwr", flwr.__version__, "xgboost", xgboost.__version__)
trees = {rounds: len(federate(1, rounds).get_dump()) for rounds in (1, 3)}
print(f"trees of {CLIENTS} clients that train some rounds of one tree:", trees)
three = {"objective": "multi:softprob", "num_class": 3}
alone, together = train(b"", 20, **three), federate(20, 1, **three)
by_class = {"alone": describe(alone), f"{CLIENTS} of Flower": describe(together)}
print("three classes, 20 rounds, trees by class and accuracy:", by_class)
assert trees == {1: CLIENTS, 3: 3 + CLIENTS - 1}
assert by_class["alone"][0] == [20, 20, 20] and by_class["3 of Flower"][0] == [20 * CLIENTS, 1, 1]
assert by_class["3 of Flower"][1] < by_class["alone"][1] - 0.1
PYTHON
OMP_NUM_THREADS=1 venv/bin/python try.py
# Seen: trees of 3 clients: {1: 3, 3: 5}; trees by class and accuracy: alone ([20, 20, 20], 0.93), of Flower ([60, 1, 1], 0.72)
