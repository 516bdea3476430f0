#!/usr/bin/env bash
# Guess: gmqtt gives a message of QoS 2, "exactly once", to the program once, also where the link fails before the broker has its
# receipt (PUBREC) and the broker sends the message again with the same number, as it has to; paho does.
# What happens: it calls `on_message` whenever a PUBLISH comes and remembers no number, so that after each such cut a counter is
# added twice and a door opens twice. Whoever chose QoS 2 against that has paid for four packets a message.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet gmqtt==0.8.0 paho-mqtt==2.2.0
cat > try.py <<'PYTHON'
import asyncio
import socket
import threading
from importlib.metadata import version

import gmqtt
import paho.mqtt.client


CONNECT, PUBREC, PUBCOMP, SUBSCRIBE = 1, 5, 7, 8


def frame(first: int, body: bytes) -> bytes:
    return bytes([first, len(body)]) + body


def serve(listener: socket.socket, done: threading.Event) -> None:
    """A broker of MQTT 3.1.1 that sends 21, loses the link with the receipt, and sends it once more."""
    for again in (False, True):
        link, _ = listener.accept()
        stream = link.makefile("rb")
        while head := stream.read(1):
            body = stream.read(stream.read(1)[0])
            kind = head[0] >> 4
            if kind == CONNECT:
                link.sendall(frame(0x20, bytes([again, 0])))
            if kind == (CONNECT if again else SUBSCRIBE):
                if not again:
                    link.sendall(frame(0x90, body[:2] + b"\2"))
                link.sendall(frame(0x3C if again else 0x34, b"\0\5meter" + b"\0\7" + b"21"))
            if kind == PUBREC:
                if not again:
                    break
                link.sendall(frame(0x62, body[:2]))
            if kind == PUBCOMP:
                done.set()
        stream.close()
        link.close()


def broker() -> tuple[int, threading.Event]:
    listener, done = socket.create_server(("127.0.0.1", 0)), threading.Event()
    threading.Thread(target=serve, args=(listener, done), daemon=True).start()
    return listener.getsockname()[1], done


async def by_gmqtt() -> list[bytes]:
    port, done = broker()
    seen = []

    async def on_message(client, topic, payload, qos, properties) -> int:
        seen.append(payload)
        return 0

    client = gmqtt.Client("display", clean_session=False)
    client.set_config({"reconnect_delay": 1})
    client.on_message = on_message
    await client.connect("127.0.0.1", port, version=4)
    client.subscribe("meter", qos=2)
    assert await asyncio.to_thread(done.wait, 60)
    await client.disconnect()
    return seen


def by_paho() -> list[bytes]:
    port, done = broker()
    seen = []
    client = paho.mqtt.client.Client(paho.mqtt.client.CallbackAPIVersion.VERSION2, "display", clean_session=False)
    client.on_message = lambda client, data, message: seen.append(message.payload)
    client.on_connect = lambda client, data, flags, *rest: flags.session_present or client.subscribe("meter", 2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert done.wait(60)
    client.disconnect()
    client.loop_stop()
    return seen


print("gmqtt", version("gmqtt"), "paho-mqtt", version("paho-mqtt"))
seen = {"paho": by_paho(), "gmqtt": asyncio.run(by_gmqtt())}
print("one message of QoS 2, given to the program:", seen)
assert seen == {"paho": [b"21"], "gmqtt": [b"21", b"21"]}
PYTHON
venv/bin/python try.py
# Seen: one message of QoS 2, given to the program: {'paho': [b'21'], 'gmqtt': [b'21', b'21']}
