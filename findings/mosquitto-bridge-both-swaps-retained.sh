#!/usr/bin/env bash
# Guess: two Mosquittos with a bridge of `topic # both` agree again after the link was cut: whichever value was
# published last wins, or one broker's.
# What happens: they swap. A retained value that changed on one side meanwhile is sent over while the other side's
# old one comes back, both as new messages: afterwards the side that made the change has the old value and the other
# side the new one, until somebody publishes again. The same with 3.1.1 and 5, `cleansession` true and false, in
# 2.0.11 and 2.1.2. With `topic x out` and `topic y in`, one line for each owner, both have the new value.
set -euo pipefail
command -v mosquitto > /dev/null || apt-get install -y -q 'mosquitto=2.0.11*'
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet paho-mqtt==2.1.0
cat > try.py <<'PY'
import os
import subprocess
import sys
import threading
import time

import paho.mqtt.client as mqtt

SITE, CENTRE = 21092, 21091
MOSQUITTO = os.environ.get("MOSQUITTO", "mosquitto")
LISTEN = "listener {} 127.0.0.1\nallow_anonymous true\nuser root\n"
BRIDGE = "connection c\naddress 127.0.0.1:{}\nnotifications false\nrestart_timeout 1 1\ntopic # {} 1\n"


def start(name: str, text: str) -> subprocess.Popen[bytes]:
    """Persistence keeps what is retained, so that a stop of the bridging broker is an outage of the link."""
    with open(f"{name}.conf", "w") as file:
        file.write(f"{text}persistence true\npersistence_file {name}.db\npersistence_location {os.getcwd()}/\n")
    broker = subprocess.Popen([MOSQUITTO, "-c", f"{name}.conf"], stderr=subprocess.DEVNULL)
    time.sleep(2)
    return broker


def connected(port: int) -> mqtt.Client:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    return client


def publish(port: int, value: str) -> None:
    client = connected(port)
    client.publish("state", value, qos=1, retain=True).wait_for_publish(10)
    client.disconnect()


def retained(port: int) -> str:
    client, heard, values = connected(port), threading.Event(), []
    client.on_message = lambda _c, _u, message: (values.append(message.payload.decode()), heard.set())
    client.subscribe("state", 1)
    heard.wait(10)
    client.disconnect()
    return values[0]


def after_outage(direction: str) -> tuple[str, str]:
    """What site and centre retain after the site has changed the value while the link was cut."""
    for name in ("site.db", "centre.db"):
        if os.path.exists(name):
            os.remove(name)
    centre = start("centre", LISTEN.format(CENTRE))
    site = start("site", LISTEN.format(SITE) + BRIDGE.format(CENTRE, direction))
    publish(SITE, "old")
    time.sleep(1)
    both = retained(SITE), retained(CENTRE)
    assert both == ("old", "old"), both
    site.terminate()
    site.wait()
    site = start("site", LISTEN.format(SITE))  # alone: the link is cut
    publish(SITE, "new")
    site.terminate()
    site.wait()
    site = start("site", LISTEN.format(SITE) + BRIDGE.format(CENTRE, direction))
    time.sleep(2)
    found = retained(SITE), retained(CENTRE)
    for broker in (site, centre):
        broker.terminate()
        broker.wait()
    return found


print(subprocess.run([MOSQUITTO, "-h"], capture_output=True, text=True).stdout.splitlines()[0])
for direction in ("out", "both"):
    print(direction, "-> (site, centre) =", after_outage(direction))
assert after_outage("both") == ("old", "new")
PY
venv/bin/python try.py
# Seen with 2.0.11: out -> ('new', 'new'); both -> ('old', 'new')
