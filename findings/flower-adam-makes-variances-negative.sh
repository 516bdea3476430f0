#!/usr/bin/env bash
# Guess: Flower's server optimizers take the model of a round, of which the running variances of batch normalisation are a
# part, to one that can be evaluated, in the type in which clients sent it; and `eta_l`, the clients' rate, has an effect.
# What happens: they step all arrays alike, by about `eta`, 0.1 by default. A variance that clients bring from 0.05 to 0.03 is
# -0.024 after a round of FedAdam and -0.05 with FedAdagrad: its root is NaN, and so are the network's answers. FedAdam's model
# is in float64 from then on, twice the bytes on the wire. `eta_l` changes nothing.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet flwr==1.42.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import flwr
import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAdagrad, FedAdam, FedAvg


class Client(ClientProxy):
    def nothing(self, *_: object) -> None:
        """Only its answer is needed."""

    get_properties = get_parameters = fit = evaluate = reconnect = nothing


def after_round(kind: type[FedAvg], **settings: float) -> tuple[float, str]:
    """The variance, and its type, that comes of 0.05 if two clients answer 0.03."""
    before, sent = (ndarrays_to_parameters([np.array([value], np.float32)]) for value in (0.05, 0.03))
    results = [(Client(name), FitRes(Status(Code.OK, ""), sent, 30, {})) for name in "ab"]
    strategy = kind(initial_parameters=before, fit_metrics_aggregation_fn=lambda _: {}, **settings)
    [variance] = parameters_to_ndarrays(strategy.aggregate_fit(1, results, [])[0])
    return round(float(variance[0]), 4), variance.dtype.name


print("flwr", flwr.__version__)
seen = {kind.__name__: after_round(kind) for kind in (FedAvg, FedAdam, FedAdagrad)}
other = after_round(FedAdam, eta_l=10)
print(seen, "FedAdam of another eta_l:", other)
assert seen == {"FedAvg": (0.03, "float32"), "FedAdam": (-0.0242, "float64"), "FedAdagrad": (-0.05, "float32")}
assert other == seen["FedAdam"]
PYTHON
venv/bin/python try.py
# Seen: {FedAvg: (0.03, float32), FedAdam: (-0.0242, float64), FedAdagrad: (-0.05, float32)}
