#!/usr/bin/env bash
# Guess: `message_callback_add` of paho-mqtt is called for the messages of a filter that was subscribed, also of a shared one:
# the text that `subscribe` takes, "$share/workers/jobs/#", is the text to give.
# What happens: it compares that text with the topic "jobs/1" as it is, and never calls. The jobs go to `on_message`, and where
# there is none they are confirmed to the broker (QoS 1 and 2) and dropped: no worker does them, and no other is given them.
# With "jobs/#" for the callback all are there. Nothing is said.
set -euo pipefail
command -v mosquitto > /dev/null || apt-get install -y -q 'mosquitto=2.0.11*'
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet paho-mqtt==2.2.0
cat > try.py <<'PYTHON'
import socket
import subprocess
import threading
import time
from importlib.metadata import version

import paho.mqtt.client as mqtt

PORT, JOBS, SHARED = 21097, 5, "$share/workers/jobs/#"


def client(name: str) -> mqtt.Client:
    made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, clean_session=False)
    ready = threading.Event()
    made.on_subscribe = lambda *_: ready.set()
    made.connect("127.0.0.1", PORT)
    made.loop_start()
    made.subscribe([(SHARED, 1), (f"end/{name}", 1)])
    assert ready.wait(10)
    return made


def leave(worker: mqtt.Client) -> None:
    worker.disconnect()
    worker.loop_stop()


def handled(name: str, pattern: str) -> list[int]:
    """How many jobs a worker's callback has, and how many are left for the same worker when it comes again."""
    worker, jobs, end = client(name), [], threading.Event()
    worker.message_callback_add(pattern, lambda _client, _data, message: jobs.append(message.topic))
    worker.message_callback_add(f"end/{name}", lambda *_: end.set())
    for number in range(JOBS):
        worker.publish(f"jobs/{number}", "work", 1)
    worker.publish(f"end/{name}", "", 1)
    assert end.wait(10)
    leave(worker)
    seen = len(jobs)
    again, end = client(name), threading.Event()
    again.on_message = lambda _client, _data, message: (
        end.set() if message.topic.startswith("end") else jobs.append(message.topic)
    )
    again.publish(f"end/{name}", "", 1)
    assert end.wait(10)
    again.unsubscribe(SHARED)
    leave(again)
    return [seen, len(jobs) - seen]


with open("broker.conf", "w") as settings:
    settings.write(f"listener {PORT} 127.0.0.1\nallow_anonymous true\n")
with subprocess.Popen(["mosquitto", "-c", "broker.conf"], stderr=subprocess.DEVNULL) as broker:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", PORT)).close()
            break
        except OSError:
            time.sleep(0.1)
    print("paho-mqtt", version("paho-mqtt"), flush=True)
    seen = {pattern: handled(f"worker-{number}", pattern) for number, pattern in enumerate(("jobs/#", SHARED))}
    broker.terminate()
for pattern, (called, left) in seen.items():
    print(f"callback of {pattern}: {called} of {JOBS} jobs, {left} left at the broker")
assert seen == {"jobs/#": [JOBS, 0], SHARED: [0, 0]}
PYTHON
venv/bin/python try.py
# Seen: callback of jobs/#: 5 of 5 jobs, 0 left at the broker; of $share/workers/jobs/#: 0 of 5 jobs, 0 left at the broker
