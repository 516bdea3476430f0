"""The MQTT channel: requests on one topic, answers on another (`schemas.topics.PredictTopic`).

Requests and answers are those of `POST /predict`; an answer has the request's `id`, or else the first 16
digits of the request's sha256. Imports paho: import it late.
"""

import hashlib
import json
import logging
import queue
import threading
from typing import Any

from edge_client.inference.service.predictor import Busy, Predictor, answer_or_refuse
from edge_client.transport import broker_link, mqtt_client
from edge_client.transport.broker_link import BrokerAddress
from edge_client.transport.event_loop import EventLoop
from schemas import errors, topics

log = logging.getLogger(__name__)

MAX_WAITING = 64  # largest number of waiting requests; more are refused


class MqttChannel:
    """Answers the requests on a device's topic one after the other, until it is closed."""

    def __init__(
        self, address: BrokerAddress, predictor: Predictor, *, federation: str, device: str, max_body: int
    ) -> None:
        self._predictor, self._max_body = predictor, max_body
        self._answers = str(topics.PredictTopic(federation, device, "answer"))
        self._inbox: broker_link.Inbox = queue.SimpleQueue()
        self._link = mqtt_client.Link(
            address,
            self._inbox,
            client_id=f"{federation}-{device}-serve",
            filters=(str(topics.PredictTopic(federation, device, "request")),),
        )
        self._address, self._closed = address, False
        self.loop = EventLoop(self._inbox, handle=self._handle)
        self._thread = threading.Thread(target=self._run, name="mqtt", daemon=True)

    def open(self) -> None:
        self._link.open()
        self._thread.start()

    def close(self) -> None:
        """Answer the waiting requests, and disconnect."""
        self._inbox.put(None)
        self._thread.join()
        self._link.close()

    def _run(self) -> None:
        self.loop.run(until=lambda: self._closed)

    def _handle(self, event: Any) -> None:
        match event:
            case None:
                self._closed = True
            case broker_link.Arrived(_, payload):
                outcome, document = answer_or_refuse(payload, lambda: self._answer(payload))
                self._predictor.metrics.request("mqtt", outcome)
                document.setdefault("id", hashlib.sha256(payload).hexdigest()[:16])
                self._link.publish(self._answers, json.dumps(document).encode())
            case broker_link.LinkUp():
                log.info("answering at %s on %s", self._address, self._answers)
                self._link.handle(event)
            case broker_link.LinkDown(reason):
                log.warning("no connection to %s: %s; trying again", self._address, reason)
                self._link.handle(event)
            case broker_link.NotGranted(_, reason):
                log.warning("%s does not let this service subscribe to requests: %s", self._address, reason)
            case broker_link.Confirmed():
                self._link.handle(event)

    def _answer(self, payload: bytes) -> dict[str, Any]:
        if len(payload) > self._max_body:
            raise errors.ConfigError(f"at most {self._max_body} bytes are taken")
        if self._inbox.qsize() > MAX_WAITING:
            raise Busy(f"{MAX_WAITING} requests wait: try again")
        return self._predictor.answer(payload)
