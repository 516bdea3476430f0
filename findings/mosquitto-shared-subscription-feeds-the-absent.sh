#!/usr/bin/env bash
# Guess: a shared subscription gives each message to one member of the group that is there. If one of two has gone and its
# session is kept, the other has all messages, or what is kept for the absent one (QoS 1) goes to the other in the end.
# What happens: Mosquitto goes on to deal in turn. Of QoS 0 every second message is gone for good. Of QoS 1 every second one
# waits for the absent member, and when its session expires they are dropped, although the other is there all the time (MQTT
# 5, section 4.8.2: the server should send them to another). A spare receiver that keeps its session thus costs messages.
set -euo pipefail
command -v mosquitto > /dev/null || apt-get install -y -q 'mosquitto=2.0.11*'
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet paho-mqtt==2.1.0
cat > try.py <<'PYTHON'
import subprocess
import threading
import time

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PORT, SENT, KEPT_S = 21093, 10, 2


class Member:
    """A member of a group whose session is kept for KEPT_S seconds, and what it received."""

    def __init__(self, name: str, group: str) -> None:
        self.messages: list[str] = []
        ready, kept = threading.Event(), Properties(PacketTypes.CONNECT)
        kept.SessionExpiryInterval = KEPT_S
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, f"{group}-{name}", protocol=mqtt.MQTTv5)
        self.client.on_message = lambda _client, _data, message: self.messages.append(message.payload.decode())
        self.client.on_connect = lambda client, *_: client.subscribe(f"$share/group/{group}", 1)
        self.client.on_subscribe = lambda *_: ready.set()
        self.client.connect("127.0.0.1", PORT, clean_start=False, properties=kept)
        self.client.loop_start()
        assert ready.wait(10)

    def leave(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def publish(topic: str, quality: int) -> None:
    sender = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    sender.connect("127.0.0.1", PORT)
    sender.loop_start()
    for number in range(SENT):
        sender.publish(topic, str(number), quality).wait_for_publish(10)
    sender.disconnect()
    sender.loop_stop()
    time.sleep(1)


def received(quality: int, away_s: float) -> tuple[int, int]:
    """How many messages the present and the absent member have in the end."""
    group = f"{quality}-{away_s}"
    present, absent = Member("present", group), Member("absent", group)
    absent.leave()
    publish(group, quality)
    time.sleep(away_s)
    back = Member("absent", group)
    time.sleep(1)
    for member in (present, back):
        member.leave()
    return len(present.messages), len(back.messages)


with open("broker.conf", "w") as file:
    file.write(f"listener {PORT} 127.0.0.1\nallow_anonymous true\n")
broker = subprocess.Popen(["mosquitto", "-c", "broker.conf"], stderr=subprocess.DEVNULL)
time.sleep(1)
try:
    seen = {(quality, away): received(quality, away) for quality, away in ((0, 0), (1, 0), (1, KEPT_S + 3))}
finally:
    broker.terminate()
print(subprocess.run(["mosquitto", "-h"], capture_output=True, text=True).stdout.splitlines()[0])
for (quality, away), (present, absent) in seen.items():
    print(f"{SENT} messages of QoS {quality}, back after {1 + away} s: present {present}, absent {absent}")
assert list(seen.values()) == [(5, 0), (5, 5), (5, 0)]
PYTHON
venv/bin/python try.py
# Seen with 2.0.11: QoS 0: present 5, absent 0; QoS 1: present 5, absent 5 if back in time, else 0
