"""The app that each SuperNode runs for a message of the ServerApp."""

import os

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flowerbench.task import NETWORKS, load_data, train

app = ClientApp()


@app.train()
def fit(msg: Message, context: Context) -> Message:
    """Train the received model on local data."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    config = context.run_config
    net = NETWORKS[str(config["network"])]()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    images, labels = load_data(str(config["data"]), int(context.node_config["partition-id"]))
    loss = train(
        net,
        images,
        labels,
        epochs=int(config["local-epochs"]),
        batch=int(config["batch-size"]),
        rate=float(config["learning-rate"]),
    )
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)
