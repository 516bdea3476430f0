"""Trains what `write_rounds.py` has written, without torch: train_rounds.py FOLDER NAME.

Each network's parameters go to `NAME.npz` in its folder.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from edge_client.data.dataset import make_labelled_data
from edge_client.data.local import LocalData
from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from edge_client.training.trainer import TrainingJob
from schemas.messages import TrainTask
from schemas.messages.tasks import GRAPH, STEP
from schemas.submodel import ChannelMap

folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/task.json"))
for folder in folders:
    task = TrainTask.model_validate_json((folder / "task.json").read_text())
    arrays, given = dict(np.load(folder / "arrays.npz")), np.load(folder / "examples.npz")
    data = make_labelled_data(given["images"], given["labels"])
    job = TrainingJob(
        task=task,
        plan=task.training,
        data=LocalData(data, data.subset(range(0))),
        received={"model": arrays},
        kept={},
        channel_map=ChannelMap(groups={}, parameters={}),
        board=Path("/"),
        on_epoch=lambda _: None,
        should_stop=lambda: False,
        graphs={name: folder / f"{name}.onnx" for name in (GRAPH, STEP)},
    )
    delta = OnnxTrainer(threads=1).train(job).delta
    np.savez(folder / f"{sys.argv[2]}.npz", **{name: arrays[name] + delta[name] for name in arrays})
print(f"{len(folders)} networks trained, torch is {'' if find_spec('torch') else 'not '}there")
