#!/usr/bin/env bash
# Guess: a metric of TorchMetrics that takes logits gives the same result however they are divided into batches; it says that
# it applies the sigmoid if there are values outside 0 to 1.
# What happens: it looks at each batch by itself. A device that adds answers one by one has those between 0 and 1, the
# uncertain ones, counted as probabilities, ranked among the sigmoids of the others: the same answers have an AUROC of 0.77
# in place of 0.81 and an F1 of 0.65 in place of 0.73, and a metric averaged over devices depends on their batch size.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.13.0 torchmetrics==1.9.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import torch
import torchmetrics
from torchmetrics.classification import BinaryAUROC, BinaryF1Score, MulticlassAveragePrecision

torch.manual_seed(0)
labels = torch.randint(0, 2, (2000,))
logits = (labels * 2 - 1) * 0.6 + torch.randn(2000)
classes = torch.randint(0, 3, (2000,))
of_three = torch.randn(2000, 3) * 0.5 + 0.8 * torch.nn.functional.one_hot(classes, 3)


def measured(metric: torchmetrics.Metric, given: torch.Tensor, true: torch.Tensor, batch: int) -> float:
    for start in range(0, len(true), batch):
        metric.update(given[start : start + batch], true[start : start + batch])
    return round(float(metric.compute()), 3)


print("torchmetrics", torchmetrics.__version__, "torch", torch.__version__)
seen = {}
for metric, values, true in (
    (BinaryAUROC(), logits, labels),
    (BinaryF1Score(), logits, labels),
    (MulticlassAveragePrecision(num_classes=3), of_three, classes),
):
    shares = values.softmax(1) if values.ndim == 2 else values.sigmoid()
    together, single, probabilities = (
        measured(metric.clone(), given, true, batch) for given, batch in ((values, 2000), (values, 1), (shares, 1))
    )
    name = type(metric).__name__
    print(f"{name}: {together} at once, {single} one by one, {probabilities} of probabilities one by one")
    seen[name] = together, single
    assert together == probabilities and single < together - 0.03
PYTHON
venv/bin/python try.py
# Seen: BinaryAUROC: 0.814 at once, 0.771 one by one, 0.814 of probabilities one by one
