#!/usr/bin/env bash
# Guess: the broker of aMQTT, pure Python and at home on small machines, keeps messages of QoS 1 for a subscriber that is away
# with a session that is not clean, as MQTT 3.1.1 has it.
# What happens: it does so only with `allow_anonymous` off, which asks for a user name. With it on, its default, of
# five messages that come while a client is away none arrives, and the session, granted at first, is gone, even if the
# client states its name.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet amqtt==0.12.1 paho-mqtt==2.1.0
cat > try.py <<'PYTHON'
import asyncio
import logging
import threading
import time
from importlib.metadata import version

import paho.mqtt.client as mqtt
from amqtt.broker import Broker

PORTS = {True: 21093, False: 21094}  # by `allow_anonymous`
started = threading.Semaphore(0)


async def serve(anyone: bool) -> None:
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": anyone}}
    listeners = {"default": {"type": "tcp", "bind": f"127.0.0.1:{PORTS[anyone]}"}}
    await Broker({"listeners": listeners, "plugins": plugins}).start()
    started.release()
    await asyncio.Event().wait()


class Device(mqtt.Client):
    def __init__(self, port: int, name: str, clean: bool = True) -> None:
        super().__init__(mqtt.CallbackAPIVersion.VERSION2, name, clean)
        self.heard, connected, self.subscribed = [], threading.Event(), threading.Event()
        self.on_connect = lambda *_: connected.set()
        self.on_subscribe = lambda *_: self.subscribed.set()
        self.on_message = lambda _c, _u, message: self.heard.append(message.payload.decode())
        self.username_pw_set(name)
        self.connect("127.0.0.1", port)
        self.loop_start()
        assert connected.wait(10)

    def listen(self, topic: str) -> None:
        self.subscribe(topic, 1)
        assert self.subscribed.wait(10)

    def leave(self) -> None:
        self.disconnect()
        self.loop_stop()
        time.sleep(0.5)

    def say(self, topic: str, value: str) -> None:
        self.publish(topic, value, 1).wait_for_publish(10)


logging.disable()
heard = {}
for anyone, port in PORTS.items():
    threading.Thread(target=asyncio.run, args=(serve(anyone),), daemon=True).start()
    assert started.acquire(timeout=10)
    server, device = Device(port, "server"), Device(port, "meter", clean=False)
    device.listen("tasks/meter")
    device.leave()
    for number in range(5):
        server.say("tasks/meter", str(number))
    device = Device(port, "meter", clean=False)
    time.sleep(2)
    heard[anyone] = sorted(device.heard)
print("aMQTT", version("amqtt"))
print("of five messages while it was away a client hears, by allow_anonymous:", heard)
assert heard == {True: [], False: ["0", "1", "2", "3", "4"]}
PYTHON
venv/bin/python try.py
# Seen: {True: [], False: ['0', '1', '2', '3', '4']}
