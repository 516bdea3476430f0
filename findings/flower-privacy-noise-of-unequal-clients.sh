#!/usr/bin/env bash
# Guess: Flower's differential privacy by clipping at the server, wrapped around FedAvg, adds the noise that its multiplier
# states: with a multiplier of 1, a client moves the average by at most one standard deviation of the noise.
# What happens: the noise is that of a plain mean, clip divided by the number of clients, but FedAvg weighs by examples, and
# the wrapper neither changes the weights nor minds them. Of 10 clients one that has 1000 examples beside 1 each moves the
# average by 10 standard deviations: an accountant that is told 1 promises what does not hold. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet flwr==1.42.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import logging

import flwr
import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

CLIENTS, SIZE = 10, 20_000


class Client(ClientProxy):
    def nothing(self, *_: object) -> None:
        """Only its answer is needed."""

    get_properties = get_parameters = fit = evaluate = reconnect = nothing


def influence(examples: int) -> float:
    """By how many standard deviations of the noise a client of so many examples moves the first weight."""
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fit_metrics_aggregation_fn=lambda _: {}), noise_multiplier=1, clipping_norm=1, num_sampled_clients=CLIENTS
    )
    wrapped.current_round_params = [np.zeros(SIZE, np.float32)]
    results = []
    for number in range(CLIENTS):
        update = np.zeros(SIZE, np.float32)
        update[0 if number == 0 else 1] = 5 if number == 0 else 0.001
        answer = ndarrays_to_parameters([update])
        results.append((Client(str(number)), FitRes(Status(Code.OK, ""), answer, 1 if number else examples, {})))
    [average] = parameters_to_ndarrays(wrapped.aggregate_fit(1, results, [])[0])
    return float(average[0] / average[2:].std())


logging.disable()
np.random.seed(0)
print("flwr", flwr.__version__)
seen = {examples: round(np.mean([influence(examples) for _ in range(30)]), 1) for examples in (1, 1000)}
for examples, deviations in seen.items():
    print(f"a client of {examples} examples beside nine of 1 moves the average by {deviations} standard deviations")
assert 0.4 < seen[1] < 1.6 and 9 < seen[1000] < 11
PYTHON
venv/bin/python try.py
# Seen: 1 example: 1.1 standard deviations; 1000 examples: 10.0
