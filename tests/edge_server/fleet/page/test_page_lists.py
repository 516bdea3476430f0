"""The lists of the page: filters, order and pages on the server; the audit log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_server.fleet.page.lists import AuditTail
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from tests.edge_server.fleet.page.service_pages import Browser, Stage, fill_inventory, staged
from tests.edge_server.fleet.people.people import NOW, fast_passwords


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with fast_passwords(), staged(tmp_path_factory.mktemp("service")) as made:
        sites = ("barn", "field", "mill")
        fill_inventory(made.folder, {f"cam-{number:03d}": sites[number % 3] for number in range(250)}, at=NOW)
        inventory = Inventory(made.folder.inventory)
        inventory.set_note("home", "cam-007", "behind the silo")
        inventory.add("home", "cam-008", alive=False, seen_at=NOW - 100)
        inventory.add("home", "cam-009", alive=False, seen_at=None)
        inventory.close()
        yield made


@pytest.fixture(scope="module")
def browser(stage: Stage) -> Browser:
    return stage.visitor("vera")


def devices(browser: Browser, **asked: Any) -> Any:
    answer = browser.client.get("/api/devices", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_page_of_devices_has_the_rows_asked_for(browser: Browser) -> None:
    first = devices(browser)
    assert (first["total"], first["matching"], len(first["rows"])) == (253, 253, 100)
    assert first["rows"][0]["device"] == "cam-000"
    last = devices(browser, offset=200, limit=100)
    assert [row["device"] for row in last["rows"]][-3:] == ["pi-1", "pi-2", "pi-3"]
    assert devices(browser, offset=900)["rows"] == []
    assert len(devices(browser, limit=100_000)["rows"]) == 253


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"where": "site=barn"}, 84 + 2),
        ({"where": "site in (barn, mill)"}, 84 + 83 + 2),
        ({"where": "site!=barn", "find": "cam-01"}, 7),
        ({"where": "!site"}, 0),
        ({"where": "device=cam-007"}, 1),
        ({"find": "SILO behind"}, 1),
        ({"find": "raspberry"}, 253),
        ({"find": "silo barn"}, 0),
    ],
)
def test_devices_are_found_by_selector_and_words(browser: Browser, asked: dict[str, str], count: int) -> None:
    assert devices(browser, **asked)["matching"] == count


def test_devices_are_sorted_and_unknown_values_come_last(browser: Browser) -> None:
    silent = devices(browser, sort="seen")["rows"]
    assert silent[0]["device"] == "cam-008"
    assert devices(browser, sort="seen", offset=252)["rows"][0]["device"] == "cam-009"
    assert devices(browser, sort="-seen", offset=252)["rows"][0]["device"] == "cam-009"
    states = [row["state"] for row in devices(browser, sort="-state")["rows"][:3]]
    assert states == ["never seen", "offline", "online"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"wehre": "site=barn"}, "there is no option 'wehre' (did you mean 'where'?)"),
        ({"where": "site in (barn"}, "is not a condition on a label"),
        ({"sort": "colour"}, "there is no column 'colour'"),
        ({"offset": "-1"}, "not a whole number"),
        ({"limit": "1e9"}, "not a whole number"),
        ({"offset": "9" * 30}, "not a whole number"),
    ],
)
def test_a_wrong_question_is_one_line(browser: Browser, asked: dict[str, str], message: str) -> None:
    answer = browser.client.get("/api/devices", params=asked)
    assert answer.status_code == 400
    assert message in answer.json()["error"]
    (problem,) = answer.json()["problems"]
    assert answer.json()["error"] == ": ".join(filter(None, problem.values()))


def test_a_device_has_labels_of_its_own_and_of_the_operator(browser: Browser, stage: Stage) -> None:
    operator = stage.visitor("otto")
    assert (
        operator.act("devices.label", federation="home", device="pi-1", labels="site=loft").status_code == 200
    )
    device = browser.get("/api/device/home/pi-1").json()
    assert device["labels"] == {"site": "loft"}
    assert (device["own_labels"], device["stated_labels"]) == ({"site": "loft"}, {"site": "barn"})
    assert device["client"] == "0.1.0"
    assert browser.get("/api/device/home/pi-99").status_code == 404


def test_the_audit_log_is_shown_newest_first_and_filtered(stage: Stage) -> None:
    admin = stage.visitor("ada")
    for number in range(3):
        audit_log.append_entry(
            stage.folder.audit, who=f"local:user-{number}", what="jobs.stop", target="nightly"
        )
    entries = admin.get("/api/audit?what=nightly").json()["entries"]
    assert [entry["who"] for entry in entries] == ["local:user-2", "local:user-1", "local:user-0"]
    assert "previous" not in entries[0]
    assert len(admin.get("/api/audit?who=USER-1&what=stop").json()["entries"]) == 1


def test_a_log_that_grows_is_replaced_or_damaged_is_read_on(tmp_path: Path) -> None:
    path, tail = tmp_path / "audit.jsonl", AuditTail(tmp_path / "audit.jsonl")

    def targets() -> list[str]:
        return [entry["target"] for entry in tail.newest(who="", what="", most=3)]

    assert targets() == []
    for number in range(3):
        audit_log.append_entry(path, who="local:ada", what="label", target=f"pi-{number}")
    assert targets() == ["pi-2", "pi-1", "pi-0"]
    with path.open("a") as file:
        file.write('{"damaged"}\n{"torn')
    assert targets() == ["pi-2", "pi-1", "pi-0"]
    audit_log.append_entry(path, who="local:ada", what="label", target="pi-3")
    assert targets() == ["pi-3", "pi-2", "pi-1"]
    path.unlink()
    audit_log.append_entry(path, who="local:ada", what="label", target="pi-9")
    assert targets() == ["pi-9"]


def test_users_and_tokens_are_listed_without_secrets(stage: Stage) -> None:
    admin = stage.visitor("ada")
    made = admin.act("tokens.make", token="ci", role="viewer", where="", days="").json()
    assert made["secret"].startswith("edge_")
    assert made["command"].startswith("edge-server tokens make ci --role viewer --service ")
    listed = admin.get("/api/users")
    assert [user["user"] for user in listed.json()["users"]] == ["ada", "otto", "vera"]
    assert [token["token"] for token in listed.json()["tokens"]] == ["ci"]
    for secret in (made["secret"], "argon2", "hash"):
        assert secret not in listed.text
