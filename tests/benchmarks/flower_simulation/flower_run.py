"""Run the app in Flower's simulation engine: `python flower_run.py JOB.json`, where Flower is installed.

The app is a separate module, since Ray would pickle objects of the main program for its actors.
"""

import json
import os
import sys
import time
from pathlib import Path

import flower_app
from flwr.simulation import run_simulation

if __name__ == "__main__":
    os.environ["FLOWER_JOB"] = sys.argv[1]
    job = flower_app.job()
    began = time.perf_counter()
    run_simulation(
        server_app=flower_app.server,
        client_app=flower_app.client,
        num_supernodes=job["clients"],
        backend_config={
            "init_args": {"num_cpus": job["workers"]},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    ended = flower_app.ended
    rounds = [end - begin for begin, end in zip([began, *ended], ended, strict=False)]
    tested = [(at - began, accuracy) for at, accuracy in flower_app.tested]
    Path(job["result"]).write_text(
        json.dumps({"rounds": rounds, "tested": tested, "processor": flower_app.processor})
    )
