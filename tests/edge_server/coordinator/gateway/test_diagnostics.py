"""An operator reaches a device behind the gateway of a site; answers to others do not use the far link."""

import json
import threading
from pathlib import Path

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.coordinator.gateway import intake
from edge_server.coordinator.gateway.gateway import SiteGateway
from edge_server.fleet.diagnostics import inquiry, operator
from edge_server.fleet.diagnostics.inquiry import Status, Terms
from edge_server.fleet.diagnostics.operator import OperatorConnection, Selection
from edge_server.rounds.gateway.events import DeviceSpoke, MessageForDevice
from edge_server.rounds.gateway.state import Gateway
from edge_server.transport.broker.launch import running_broker
from schemas.errors import PeerError
from schemas.messages import DiagnosticReceipt, DiagnosticRequest, encode_message
from schemas.messages.remote import Diagnostic
from schemas.selectors import parse_where
from schemas.topics import Channel, DeviceTopic, SiteTopic
from tests.edge_server.cli.fleet.test_asking_devices import DEADLINE_S, agent

SITE, DEVICE = "barn", "barn.pi-1"


def request(number: int = 1, device: str = DEVICE) -> DiagnosticRequest:
    return DiagnosticRequest(federation="home", device=device, request=f"{number:016x}", what=Diagnostic.LOGS)


def receipt(number: int = 1, device: str = DEVICE) -> DiagnosticReceipt:
    return DiagnosticReceipt(federation="home", device=device, request=f"{number:016x}")


def test_requests_and_answers_are_passed_on_for_their_device_alone():
    gateway = Gateway("home", SITE)
    down, up = (
        SiteTopic("home", SITE, Channel.DOWN_FLEET, DEVICE),
        DeviceTopic("home", DEVICE, Channel.UP_FLEET),
    )
    assert intake.read_above(str(down), encode_message(request()), gateway) == MessageForDevice(
        DEVICE, request()
    )
    assert intake.read_below(up, encode_message(receipt()), gateway) == DeviceSpoke(receipt())
    with pytest.raises(PeerError):
        intake.read_above(str(down), encode_message(request(device="barn.pi-2")), gateway)
    with pytest.raises(PeerError):
        intake.read_below(up, encode_message(receipt(device="barn.pi-2")), gateway)
    with pytest.raises(PeerError):
        intake.read_above(str(down), encode_message(receipt()), gateway)


def test_requests_are_limited_and_only_their_answers_are_known():
    passed = intake.PassedRequests()
    for number in range(intake.MAX_REQUESTS):
        passed.admit(request(number), 1.0)
    with pytest.raises(PeerError, match="requests for diagnostics"):
        passed.admit(request(), 1.0)
    passed.admit(request(999), 1.0 + intake.WINDOW_S)
    assert passed.is_answer(receipt(999))
    assert not passed.is_answer(receipt(999, device="barn.pi-2"))
    assert not passed.is_answer(receipt(998))
    for number in range(intake.MAX_KNOWN):
        passed.admit(request(10_000 + number), intake.WINDOW_S * (number + 2))
    assert not passed.is_answer(receipt(999))


def test_an_operator_reaches_a_device_behind_a_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(operator, "GATHER_S", 0.5)
    monkeypatch.setattr(inquiry, "SILENT_S", 1.0)
    with (
        running_broker("embedded", tmp_path / "above") as above,
        running_broker("embedded", tmp_path / "below") as below,
    ):
        upstream, shown = parse_address(above.url), list[str]()
        names, folder = {"federation": "home", "site": SITE}, tmp_path / "gateway"
        gateway = SiteGateway(upstream, parse_address(below.url), **names, folder=folder, show=shown.append)
        device = agent(DEVICE, below.url, tmp_path)
        threads = [threading.Thread(target=part.run) for part in (gateway, device)]
        for thread in threads:
            thread.start()
        try:
            found = asked(upstream, Selection((DEVICE,)))
            by_label = asked(upstream, Selection(where=parse_where("site=barn")))
        finally:
            device.stop()
            gateway.stop()
            for thread in threads:
                thread.join(DEADLINE_S)
    assert "<data>" in json.dumps(found[DEVICE].document)
    assert by_label.keys() == {DEVICE}
    assert shown[-1] == "stopped; the same command continues"
    assert by_label[DEVICE].status is Status.ANSWERED


def asked(address, selection: Selection):
    """The answers, once the gateway has told above that the device is there."""
    found = {}
    for _ in range(DEADLINE_S):
        terms = Terms(Diagnostic.LOGS)
        found = OperatorConnection(address, "home", selection, terms, patience_s=DEADLINE_S).run()
        if any(device.status is Status.ANSWERED for device in found.values()):
            break
    return found
