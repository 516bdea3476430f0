#!/usr/bin/env bash
# Guess: Flower's FedAvg gives the weighted mean of each array, and where all clients send the same whole numbers, such as
# the `num_batches_tracked` of batch normalisation in torch's state dict or weights of 8 bits, that number.
# What happens: with two clients or more, every array of whole numbers becomes 0, without a word: each client's share, 0.5,
# is cast to the array's type before it is multiplied. With one client, whose share is 1, they stay. With `inplace=False` the
# counter is right, but 8 bits are multiplied by the number of examples within 8 bits: 7 by 30 is -46.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet flwr==1.42.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import flwr
import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg

SENT = [np.array(7), np.array([7, -7], np.int8), np.array([7.0], np.float32)]


class Client(ClientProxy):
    def nothing(self, *_: object) -> None:
        """Only its answer is needed."""

    get_properties = get_parameters = fit = evaluate = reconnect = nothing


def averaged(clients: int, **settings: bool) -> list[list[float]]:
    """What FedAvg makes of some equal answers of 30 examples each."""
    answer = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(SENT), 30, {})
    results = [(Client(str(number)), answer) for number in range(clients)]
    parameters, _ = FedAvg(fit_metrics_aggregation_fn=lambda _: {}, **settings).aggregate_fit(1, results, [])
    return [array.ravel().tolist() for array in parameters_to_ndarrays(parameters)]


print("flwr", flwr.__version__)
seen = {"one": averaged(1), "two": averaged(2), "inplace=False": averaged(2, inplace=False)}
for name, arrays in seen.items():
    print(f"{name:14}", arrays)
assert seen["one"] == [[7], [7, -7], [7]] and seen["two"] == [[0], [0, 0], [7]]
assert seen["inplace=False"][0] == seen["inplace=False"][2] == [7] and seen["inplace=False"][1][0] < 0
PYTHON
venv/bin/python try.py
# Seen: one [[7], [7, -7], [7.0]]; two [[0], [0, 0], [7.0]]; inplace=False [[7.0], [-1.53, 1.53], [7.0]]
