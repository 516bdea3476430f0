"""Receivers against loopback servers: what they send, and what an error says."""

import base64
import hashlib
import hmac
import json

import pytest

from edge_server.fleet.alerts.alert import Alert, AlertSubject, Notification, Phase
from edge_server.fleet.alerts.delivery import DeliveryError
from edge_server.fleet.alerts.message import body, document, title, trial_notification
from edge_server.fleet.alerts.receivers.home_assistant import home_assistant, messages
from edge_server.fleet.alerts.receivers.http_post import alertmanager, webhook
from edge_server.fleet.alerts.receivers.http_post import alerts as manager_alerts
from edge_server.fleet.alerts.receivers.mail import mail
from edge_server.fleet.settings.alerts import (
    AlertmanagerReceiver,
    HomeAssistantReceiver,
    MailReceiver,
    WebhookReceiver,
)
from edge_server.fleet.settings.page import PageSettings
from edge_server.transport.broker.launch import free_port
from schemas.errors import ConfigError
from tests.edge_server.fleet.alerts.receivers import running_hook, running_mailbox

NOW = 1_800_000_000.0


def alert(name: str = "pi-7", **values) -> Alert:
    subject = AlertSubject(
        kind="device",
        federation="orchard",
        name=name,
        labels={"device": name, "federation": "orchard", "site": "barn", "role": "camera"},
        site="barn",
        note="above the door",
        seen_at=NOW - 7500,
        certificate_until=NOW + 86_400,
    )
    about = {
        "rule": "silent",
        "severity": "warning",
        "text": "has not been heard since noon",
        "remedy": "look",
    }
    return Alert(
        subject=subject, since=NOW - 60, fired_at=NOW - 30, phase=Phase.FIRING, **{**about, **values}
    )


def notification(*firing: Alert, resolved: tuple[Alert, ...] = ()) -> Notification:
    return Notification(
        receiver="ops", rule="silent", severity="warning", at=NOW, firing=firing, resolved=resolved
    )


def test_a_message_names_the_device_where_it_is_and_what_to_do():
    text = body(notification(alert()))
    for expected in (
        "pi-7 has not been heard since noon",
        "site: barn",
        "labels: role=camera",
        "note: above the door",
        "last seen: 2027-01-15 05:55 UTC",
        "certificate until: 2027-01-16 08:00 UTC",
        "next: look",
    ):
        assert expected in text
    many = notification(*(alert(f"pi-{number}") for number in range(5)), resolved=(alert("pi-9"),))
    assert title(many) == "warning: silent: pi-0, pi-1, pi-2 and 2 more; resolved: 1"
    assert title(notification(resolved=(alert(),))) == "resolved: silent: pi-7"


def test_a_webhook_is_signed_with_the_secret(tmp_path):
    (tmp_path / "secret").write_text("open sesame\n")
    with running_hook() as hook:
        settings = WebhookReceiver(kind="webhook", url=f"{hook.url}/a?b=1", secret=tmp_path / "secret")
        webhook(settings, clock=lambda: NOW)(notification(alert(), resolved=(alert("pi-8"),)))
        posted = hook.next()
    assert posted.path == "/a?b=1"
    signed = hmac.new(b"open sesame", f"{NOW:.0f}.".encode() + posted.content, hashlib.sha256).hexdigest()
    assert posted.headers["X-Edge-Signature"] == f"sha256={signed}"
    document = json.loads(posted.content)
    assert [(entry["status"], entry["device"]) for entry in document["alerts"]] == [
        ("firing", "pi-7"),
        ("resolved", "pi-8"),
    ]
    assert document["alerts"][0]["remedy"] == "look"


def test_a_message_links_to_the_page_of_its_subject():
    told = notification(alert(), resolved=(alert("pi 8"),)).model_copy(
        update={"page": "https://fleet.example/"}
    )
    found = document(told)
    assert found["url"] == "https://fleet.example/"
    links = [entry["url"] for entry in found["alerts"]]
    assert links == [
        f"https://fleet.example/#devices/{alert().subject.federation}/{name}" for name in ("pi-7", "pi%208")
    ]
    assert body(told).count("page: https://fleet.example/#devices/") == 2
    settings = AlertmanagerReceiver(kind="alertmanager", url="http://127.0.0.1:9")
    assert [entry["generatorURL"] for entry in manager_alerts(settings, told)] == links
    assert (document(notification(alert()))["url"], document(notification(alert()))["alerts"][0]["url"]) == (
        None,
        None,
    )


@pytest.mark.parametrize(
    ("page", "address"),
    [
        ({}, "http://127.0.0.1:8270"),
        ({"host": "::1", "port": 9000}, "http://[::1]:9000"),
        ({"host": "fleet.lan", "cert": "c", "key": "k"}, "https://fleet.lan:8270"),
        ({"url": "https://fleet.example"}, "https://fleet.example"),
        ({"port": 0}, ""),
        ({"enabled": False}, ""),
    ],
)
def test_the_address_of_the_page_follows_from_its_settings(page, address):
    assert PageSettings.model_validate(page).address == address


def test_a_webhook_that_refuses_or_is_not_there_says_why_in_one_line(tmp_path):
    with running_hook(403, 302) as hook:
        deliver = webhook(WebhookReceiver(kind="webhook", url=hook.url))
        with pytest.raises(DeliveryError, match="answered 403 Forbidden; check the secret"):
            deliver(notification(alert()))
        with pytest.raises(DeliveryError, match="answered 302 Found; write the address that it redirects to"):
            deliver(notification(alert()))
    gone = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(DeliveryError, match=r"cannot be reached: .*; check the address") as caught:
        webhook(WebhookReceiver(kind="webhook", url=gone))(notification(alert()))
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(ConfigError, match="the secret cannot be read"):
        webhook(WebhookReceiver(kind="webhook", url=gone, secret="missing"))


def mail_settings(port: int, **values) -> MailReceiver:
    about = {"kind": "smtp", "host": "127.0.0.1", "tls": "none", "sender": "edge@orchard.example"}
    return MailReceiver(**about, port=port, recipients=("ops@orchard.example",), **values)


def test_a_mail_has_the_title_and_the_text(tmp_path):
    (tmp_path / "password").write_text("secret")
    with running_mailbox() as mailbox:
        mail(mail_settings(mailbox.port, user="edge", password=tmp_path / "password"))(notification(alert()))
        text = mailbox.mails.get(timeout=30)
    assert "Subject: [edge] warning: silent: pi-7" in text
    assert "To: ops@orchard.example" in text
    assert "pi-7 has not been heard since noon" in text
    assert base64.b64decode(mailbox.logins[0]) == b"\0edge\0secret"


@pytest.mark.parametrize(
    ("mailbox_values", "settings_values", "says"),
    [
        ({"refuses_login": True}, {"user": "edge"}, "refused the login of edge: check user and password"),
        ({"unknown": frozenset({"ops@"})}, {}, "ops@orchard.example: 550 nobody of that name"),
        ({}, {"tls": "starttls"}, "check tls"),
    ],
)
def test_a_mail_server_that_refuses_says_why(tmp_path, mailbox_values, settings_values, says):
    with running_mailbox(**mailbox_values) as mailbox:
        settings = mail_settings(mailbox.port).model_copy(update=settings_values)
        with pytest.raises(DeliveryError) as caught:
            mail(settings)(notification(alert()))
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_mail_server_that_is_not_there_says_so(tmp_path):
    with pytest.raises(DeliveryError, match="did not take the mail: Connection refused; check host, port"):
        mail(mail_settings(free_port()))(notification(alert()))


def test_alertmanager_gets_labels_and_an_end_several_posts_ahead(tmp_path):
    with running_hook() as hook:
        settings = AlertmanagerReceiver(kind="alertmanager", url=f"{hook.url}/", labels={"team": "edge"})
        alertmanager(settings)(notification(alert(), resolved=(alert("pi-8"),)))
        posted = hook.next()
    assert posted.path == "/api/v2/alerts"
    firing, resolved = json.loads(posted.content)
    assert firing["labels"] == {
        "alertname": "silent",
        "severity": "warning",
        "federation": "orchard",
        "device": "pi-7",
        "site": "barn",
        "role": "camera",
        "team": "edge",
    }
    assert firing["startsAt"] == "2027-01-15T07:59:30Z"
    assert firing["endsAt"] == "2027-01-15T08:05:00Z"
    assert resolved["endsAt"] == "2027-01-15T08:00:00Z"


def test_home_assistant_gets_a_sensor_per_rule_and_its_state():
    settings = HomeAssistantReceiver(kind="home-assistant")
    sent = messages(settings, ["silent", "hot"], notification(alert(), resolved=(alert("pi.8"),)))
    by_topic = {topic: json.loads(payload) for _, topic, payload in sent}
    config = by_topic["homeassistant/device/orchard/pi-7_alerts/config"]
    assert config["dev"]["ids"] == ["edge-federation/orchard/pi-7"]
    assert set(config["cmps"]) == {"alert_silent", "alert_hot"}
    assert config["cmps"]["alert_silent"]["stat_t"] == "fed/v1/orchard/home/devices/pi-7/alerts/silent"
    assert by_topic["fed/v1/orchard/home/devices/pi-7/alerts/silent"]["state"] == "ON"
    assert by_topic["fed/v1/orchard/home/devices/pi.8/alerts/silent"]["state"] == "OFF"
    assert "homeassistant/device/orchard/pi_d8_alerts/config" in by_topic


def test_sensors_of_home_assistant_that_never_fired_are_off_and_not_unknown():
    settings, hot = (
        HomeAssistantReceiver(kind="home-assistant"),
        "fed/v1/orchard/home/devices/pi-7/alerts/hot",
    )
    sent: dict[str, bytes] = {}
    unresolved: set = set()
    deliver = home_assistant(
        settings,
        ["silent", "hot"],
        lambda _, topic, payload: sent.update({topic: payload}),
        unresolved=lambda: unresolved,
    )
    deliver(notification(alert()))
    assert json.loads(sent[hot])["state"] == "OFF"
    assert json.loads(sent[hot.replace("hot", "silent")])["state"] == "ON"
    sent.clear()
    unresolved.add(("hot", *alert().key[1:]))
    deliver(notification(resolved=(alert(),)))
    assert hot not in sent


def test_every_receiver_takes_a_test(tmp_path):
    trial = trial_notification("ops", NOW)
    with running_hook() as hook, running_mailbox() as mailbox:
        webhook(WebhookReceiver(kind="webhook", url=hook.url))(trial)
        assert json.loads(hook.next().content)["test"] is True
        alertmanager(AlertmanagerReceiver(kind="alertmanager", url=hook.url))(trial)
        assert json.loads(hook.next().content)[0]["labels"]["alertname"] == "test"
        mail(mail_settings(mailbox.port))(trial)
        assert "No device needs attention." in mailbox.mails.get(timeout=30)
    assert len(messages(HomeAssistantReceiver(kind="home-assistant"), [], trial, "orchard")) == 2
