"""flowerdigits: a Flower / PyTorch app."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flowerdigits.task import Net, load_data
from flowerdigits.task import test as test_fn
from flowerdigits.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    trainset, _ = load_data(context.run_config["data"], partition_id, num_partitions)
    train_loss = train_fn(
        model,
        trainset,
        context.run_config["local-epochs"],
        context.run_config["batch-size"],
        msg.content["config"]["lr"],
    )
    metrics = {"train_loss": train_loss, "num-examples": len(trainset[1])}
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    _, valset = load_data(context.run_config["data"], partition_id, num_partitions)
    eval_loss, eval_acc = test_fn(model, valset)
    metrics = {"eval_loss": eval_loss, "eval_acc": eval_acc, "num-examples": len(valset[1])}
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
