#!/usr/bin/env bash
# Guess: a `publish` of paho-mqtt that answers MQTT_ERR_NO_CONN, "the client is not currently connected", has done nothing, so
# that whoever sends a reading once more after connecting sends it once.
# What happens: of QoS 1 and 2 the message is kept all the same and sent on connecting: each reading that is sent once more
# arrives twice, counters and sums are doubled, and `wait_for_publish` raises for a message that arrives. Of QoS 0 the same
# answer means what it says: sent once, it never arrives.
set -euo pipefail
command -v mosquitto > /dev/null || apt-get install -y -q 'mosquitto=2.0.11*'
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet paho-mqtt==2.2.0
cat > try.py <<'PYTHON'
import pathlib
import subprocess
import threading
import time
from importlib.metadata import version

import paho.mqtt.client as mqtt

PORT = 21095
pathlib.Path("broker.conf").write_text(f"listener {PORT} 127.0.0.1\nallow_anonymous true\n")


def connect(client: mqtt.Client) -> None:
    ready = threading.Event()
    client.on_connect = lambda *_: ready.set()
    client.connect("127.0.0.1", PORT)
    client.loop_start()
    assert ready.wait(10)


def made(name: str) -> mqtt.Client:
    return mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name)


broker = subprocess.Popen(["mosquitto", "-c", "broker.conf"], stderr=subprocess.DEVNULL)
try:
    time.sleep(2)
    heard, complete, subscribed = [], threading.Event(), threading.Event()
    server, device = made("server"), made("meter")
    server.on_subscribe = lambda *_: subscribed.set()
    server.on_message = lambda _c, _u, message: (
        complete.set() if message.topic == "end" else heard.append(f"{message.topic} {message.payload.decode()}")
    )
    connect(server)
    server.subscribe("#", 2)
    assert subscribed.wait(10)
    answers, refusals = {}, {}
    for qos in (0, 1, 2):
        info = device.publish(f"qos{qos}", "first", qos)
        answers[qos] = mqtt.error_string(info.rc)
        try:
            info.wait_for_publish(1)
        except RuntimeError as error:
            refusals[qos] = str(error)
    connect(device)
    for qos in (0, 1, 2):
        device.publish(f"qos{qos}", "again", qos)
    device.publish("end", "", 2)
    assert complete.wait(20)
finally:
    broker.terminate()
print("paho-mqtt", version("paho-mqtt"))
print("answers before connecting:", answers)
print("wait_for_publish:", refusals)
print("arrived:", sorted(heard))
assert set(answers.values()) == {"The client is not currently connected."} and len(refusals) == 3
assert sorted(heard) == ["qos0 again", "qos1 again", "qos1 first", "qos2 again", "qos2 first"]
PYTHON
venv/bin/python try.py
# Seen: arrived: ['qos0 again', 'qos1 again', 'qos1 first', 'qos2 again', 'qos2 first']
