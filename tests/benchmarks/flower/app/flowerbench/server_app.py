"""Flower's FedAvg, which also records when its rounds begin and end."""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from flowerbench.task import NETWORKS

app = ServerApp()


class Timed(FedAvg):
    """Writes a line of JSON when the tasks of a round are made and when its replies are aggregated."""

    def __init__(self, marks: Path, nodes: int) -> None:
        super().__init__(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes
        )
        self._marks = marks

    def mark(self, what: str, number: int) -> None:
        """Append a line: the event, its round, its time, and the process."""
        line = {"what": what, "round": number, "at": time.time(), "pid": os.getpid()}
        with self._marks.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Call Flower's method, which waits for all nodes, and record the time."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.mark("tasks", server_round)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Call Flower's method, and record the number of replies without error."""
        reported = list(replies)
        sound = sum(not message.has_error() for message in reported)
        result = super().aggregate_train(server_round, reported)
        self.mark(f"closed with {sound}", server_round)
        return result


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    config = context.run_config
    net = NETWORKS[str(config["network"])]()
    strategy = Timed(Path(str(config["marks"])), int(config["nodes"]))
    strategy.mark(f"parameters {sum(p.numel() for p in net.parameters())}", 0)
    strategy.start(
        grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds=int(config["num-server-rounds"])
    )
    strategy.mark("ended", int(config["num-server-rounds"]))
