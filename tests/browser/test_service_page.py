"""The service's page in Chromium: logins, roles, buttons and their commands, two thousand devices, phones."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.fleet.actions.table import ACTIONS
from edge_server.fleet.alerts.alert import Alert, AlertSubject
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.queue.changes import add_job
from edge_server.fleet.queue.job import Cron, Job, JobRun, RunPhase
from edge_server.fleet.queue.journal import JobJournal
from edge_server.fleet.queue.state import QueueRules
from edge_server.fleet.settings.page import OidcSettings, PageSettings
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from edge_server.transport.broker.launch import free_port
from schemas.messages import Telemetry
from schemas.values import BoardState
from tests.browser.screen import Screen, own
from tests.browser.services import ServedPage, log_in, served_page
from tests.edge_server.fleet.people.people import PASSWORD, running_provider
from tests.slow import mark_slow

COUNT = 2000
COUNTED = "text => document.querySelector('.count')?.innerText.startsWith(text)"
ROWS = "() => document.querySelectorAll('#main section:not([hidden]) tbody tr').length"
WIDTH = "() => document.documentElement.scrollWidth"
CLIPPED = """() => [...document.querySelectorAll('#main .scroll, html')]
    .filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.ariaLabel)"""
EVERY_MS = 5100
"""A little more than the page waits between two requests."""
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
VIEWS = (
    ("devices", "devices-title"),
    ("devices/home/pi-0003", "device-title"),
    ("jobs", "jobs-title"),
    ("rollouts", "rollouts-title"),
    ("alerts", "alerts-title"),
    ("audit", "audit-title"),
    ("users", "users-title"),
)
MARKUP = "<img src=x onerror=document.title='x'>"
LONG_AGO = 1_700_000_000.0
SPREAD = {"user": "ada", "where": "site in (barn,field)", "labels": " a=b  c='d' ", "note": "", "days": ""}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    with served_page(tmp_path_factory.mktemp("service") / "folder", devices=COUNT) as page:
        inventory = Inventory(page.folder.inventory)
        inventory.set_note("home", "pi-0001", MARKUP)
        inventory.close()
        yield page


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    with served_page(tmp_path_factory.mktemp("small") / "folder", devices=4) as page:
        yield page


@pytest.fixture
def open_page(served: ServedPage, screen: Callable[..., Screen]) -> Iterator[Callable[..., Screen]]:
    """Open the page as a user; no page may complain."""
    opened: list[Screen] = []

    def enter(user: str, view: str = "devices", **settings: object) -> Screen:
        seen = screen(served.url, **settings)
        log_in(seen, user, view)
        opened.append(seen)
        return seen

    yield enter
    assert [seen.complaints for seen in opened] == [[] for _ in opened]


def go(seen: Screen, view: str, title: str) -> None:
    seen.page.goto(f"{seen.url}/#{view}")
    seen.page.wait_for_selector(f"section:not([hidden]) > .title > #{title}")


def test_two_thousand_devices_are_filtered_by_the_server_and_shown_by_the_page(
    open_page: Callable[..., Screen],
) -> None:
    seen = open_page("vera")
    seen.until(COUNTED, "2,000 devices")
    assert seen.page.evaluate(ROWS) == 100
    seen.page.get_by_label("Where").fill("site in (barn, mill), device!=pi-0000")
    seen.until(COUNTED, "1,332 of 2,000 devices")
    seen.page.get_by_role("button", name="Next").click()
    seen.page.get_by_text("101 to 200").wait_for()
    seen.page.reload()
    seen.page.get_by_text("101 to 200").wait_for()
    seen.page.get_by_label("Where").fill("site in (barn")
    seen.page.get_by_text("is not a condition on a label").wait_for()
    # The browser itself reports the refused request.
    assert [text for text in seen.complaints if "400" not in text] == []
    seen.complaints.clear()
    seen.page.get_by_label("Where").fill("")
    seen.page.get_by_label("Find").fill("onerror")
    seen.until(COUNTED, "1 of 2,000 devices")
    assert MARKUP in seen.text("#main section:not([hidden]) tbody")
    assert seen.page.title() == "Devices · Edge fleet"


def test_a_viewer_has_no_buttons_that_change_anything(open_page: Callable[..., Screen]) -> None:
    seen = open_page("vera")
    seen.page.wait_for_selector("tbody tr")
    assert seen.page.locator("[data-action]").all_inner_texts() == ["Change my password"]
    tabs = seen.page.get_by_role("navigation", name="Views").get_by_role("link").all_inner_texts()
    assert "Devices" in tabs
    assert not {"Audit log", "Users"} & set(tabs)
    go(seen, "devices/home/pi-0002", "device-title")
    seen.page.get_by_text("Raspberry Pi 4").wait_for()
    assert seen.page.locator("[data-action]").count() == 1


@mark_slow
def test_an_operator_sets_labels_by_keyboard_and_sees_the_command(
    open_page: Callable[..., Screen], served: ServedPage
) -> None:
    seen = open_page("otto", "devices")
    go(seen, "devices/home/pi-0005", "device-title")
    button = seen.page.get_by_role("button", name="Set labels: pi-0005")
    button.wait_for()
    assert seen.page.get_by_role("button", name="Revoke").count() == 0
    button.focus()
    seen.page.keyboard.press("Enter")
    dialog = seen.page.get_by_role("dialog", name="Set labels: pi-0005")
    dialog.get_by_label("Labels", exact=True).wait_for()
    seen.page.keyboard.type("role=camera")
    command = (
        f"edge-server inventory label pi-0005 role=camera --federation home --service {served.folder.path}"
    )
    assert dialog.locator("code").inner_text() == command
    seen.page.keyboard.press("Enter")
    dialog.wait_for(state="detached")
    seen.page.locator("li[data-own]", has_text="role=camera").wait_for()
    assert seen.page.evaluate("() => document.activeElement.dataset.action") == "devices.label"
    last = list(audit_log.read_entries(served.folder.audit))[-1]
    assert (last.who, last.what, last.target) == ("user:otto", "label", "home/pi-0005")


def test_a_refused_action_says_why_in_the_dialog_and_escape_closes_it(
    open_page: Callable[..., Screen],
) -> None:
    seen = open_page("ada")
    go(seen, "devices/home/pi-0006", "device-title")
    seen.page.get_by_role("button", name="Revoke: pi-0006").click()
    dialog = seen.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Revoke").click()
    dialog.get_by_text("service.toml names no federation").wait_for()
    assert [text for text in seen.complaints if "400" not in text] == []
    seen.complaints.clear()
    seen.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert seen.page.evaluate("() => document.activeElement.dataset.action") == "devices.revoke"


def test_an_operator_pauses_and_starts_a_job(open_page: Callable[..., Screen], served: ServedPage) -> None:
    words = ("home.toml",)
    job = Job(
        name="nightly", action="run", words=words, federation="home", folder="/srv", since=1, owner="ada"
    )
    add_job(served.folder, job, who="local:ada")
    seen = open_page("otto", "jobs")
    row = seen.page.locator("tbody tr", has_text="nightly")
    row.get_by_role("button", name="Pause: nightly").click()
    dialog = seen.page.get_by_role("dialog")
    command = f"edge-server jobs pause nightly --service {served.folder.path}"
    assert dialog.locator("code").inner_text() == command
    dialog.get_by_role("button", name="Pause").click()
    row.get_by_text("paused", exact=True).wait_for()
    row.get_by_role("button", name="Start: nightly").click()
    dialog.get_by_role("button", name="Start").click()
    row.get_by_text("paused", exact=True).wait_for(state="detached")
    assert open_page("vera", "jobs").page.locator("[data-action]").count() == 1


def test_a_bad_night_is_seen_and_answered_on_one_page(tmp_path: Path, screen: Callable[..., Screen]) -> None:
    long = "the broker mqtts://broker.example.org:8883 refuses the certificate: it has ended; " * 2
    hot = AlertSubject(kind="device", federation="home", name="pi-0002", labels={"device": "pi-0002"})
    failed = AlertSubject(kind="job", federation="home", name="nightly", labels={"job": "nightly"})
    alerts = [
        Alert(
            rule=rule, severity="critical", subject=subject, text=text, remedy=long, since=1.0, phase="firing"
        )
        for rule, subject, text in (("hot", hot, "has a temperature of 84.2 °C"), ("job", failed, long))
    ]
    with served_page(tmp_path, devices=3) as night:
        with closing(AlertStore(night.folder.alerts)) as store:
            store.save({}, {alert.key: alert for alert in alerts}, (), now=1.0)
        with closing(Inventory(night.folder.inventory)) as inventory:
            for number in range(3):
                board = BoardState(celsius=70 + number, disk_free_bytes=10**9)
                told = Telemetry(federation="home", device="pi-0002", session=1, phase="idle", board=board)
                inventory.record_telemetry(told, LONG_AGO + 600 * number)
        schedule, words = Cron(expression="0 2 * * SUN", zone="Europe/Berlin"), ("home.toml", "rounds=200")
        about = {"action": "run", "federation": "home", "folder": "/srv", "since": 1.0, "owner": "local:ada"}
        add_job(night.folder, Job(name="nightly", words=words, schedule=schedule, **about), who="local:ada")
        run = JobRun(name="nightly-1", job="nightly", due=1, by="schedule", phase=RunPhase.FAILED, why=long)
        with closing(JobJournal(night.folder.jobs)) as journal:
            queue = journal.load_queue(QueueRules())
            journal.save(queue, queue.with_run(run))
        (night.folder.runs / "nightly-1").mkdir(parents=True)
        (night.folder.runs / "nightly-1" / "job.log").write_text("round 1 of 200\nno connection\n")

        seen = screen(night.url, timezone_id="Europe/Berlin")
        log_in(seen, "otto", "alerts")
        badge = seen.page.locator("#tabs .badge")
        badge.get_by_text("2", exact=True).wait_for()
        seen.page.get_by_role("link", name="pi-0002").click()
        seen.page.get_by_role("img", name="Temperature over time").wait_for()
        assert "72.0 °C at" in seen.page.get_by_role("img", name="Temperature").get_attribute("aria-label")
        seen.page.get_by_role("button", name="Acknowledge: hot, pi-0002").click()
        dialog = seen.page.get_by_role("dialog")
        command = "edge-server alerts acknowledge hot pi-0002 --kind device --federation home --service "
        assert dialog.locator("code").inner_text() == f"{command}{night.folder.path}"
        dialog.get_by_role("button", name="Acknowledge").click()
        seen.page.get_by_text("acknowledged by otto").wait_for()
        badge.get_by_text("1", exact=True).wait_for()
        seen.page.get_by_role("button", name="Doctor: pi-0002").click()
        seen.page.get_by_role("dialog").get_by_role("button", name="Doctor").click()
        seen.page.get_by_text("waiting for the answer").wait_for()
        go(seen, "alerts", "alerts-title")
        seen.page.get_by_role("link", name="job nightly").click()
        seen.page.locator(".log", has_text="no connection").wait_for()
        seen.page.get_by_role("link", name="All jobs").click()
        seen.page.get_by_role("button", name="Add a job").click()
        seen.page.get_by_label("Name").fill("try")
        seen.page.get_by_label("Federation", exact=True).fill("no-recipe")
        seen.page.get_by_role("dialog").get_by_role("button", name="Add a job").click()
        seen.page.get_by_text("there is no recipe 'no-recipe'").wait_for()
        seen.page.keyboard.press("Escape")
        assert [text for text in seen.complaints if "400" not in text] == []
        go(seen, "audit", "audit-title")
        added = seen.page.locator("tbody tr", has_text="job added")
        added.get_by_text("words: home.toml rounds=200").wait_for()
        assert re.search(r"\d\d:\d\d:\d\d (GMT[+]|CES?T)", added.inner_text())
        assert "{" not in seen.text("#main section:not([hidden]) tbody")
        for width in (1280, 390):
            seen.page.set_viewport_size({"width": width, "height": 900})
            for view, title in (*VIEWS[1:-2], ("jobs/nightly", "job-title")):
                go(seen, view.replace("pi-0003", "pi-0002"), title)
                seen.page.locator("#main tbody tr:visible, #main .empty:visible").first.wait_for()
                assert seen.page.evaluate(CLIPPED) == [], (width, view)
                seen.shot(f"night-{title}-{width}")


def test_an_admin_makes_users_and_tokens(open_page: Callable[..., Screen], served: ServedPage) -> None:
    seen = open_page("ada", "users")
    seen.page.get_by_role("button", name="Add a user").click()
    dialog = seen.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("eve")
    dialog.get_by_label("Role").select_option("operator")
    dialog.get_by_label("Password").fill(PASSWORD)
    assert PASSWORD not in dialog.locator("code").inner_text()
    dialog.get_by_role("button", name="Add a user").click()
    seen.page.locator("tbody tr", has_text="eve").wait_for()
    seen.page.get_by_role("button", name="Make a token").click()
    dialog = seen.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("ci")
    dialog.get_by_role("button", name="Make a token").click()
    secret = dialog.get_by_label("The token").inner_text()
    assert secret.startswith("edge_")
    dialog.get_by_role("button", name="Close").click()
    answer = seen.page.request.get(f"{seen.url}/api/devices", headers={"Authorization": f"Bearer {secret}"})
    assert answer.ok
    go(seen, "audit", "audit-title")
    seen.page.locator("tbody tr", has_text="tokens.make").wait_for()
    assert secret not in served.folder.audit.read_text()


def test_a_wrong_password_and_an_ended_session_lead_to_the_login(
    served: ServedPage, screen: Callable[..., Screen]
) -> None:
    seen = screen(served.url)
    seen.page.goto(seen.url)
    seen.page.get_by_label("Name").fill("vera")
    seen.page.get_by_label("Password").fill("wrong password")
    seen.page.keyboard.press("Enter")
    seen.page.get_by_role("alert").get_by_text("user or password is wrong").wait_for()
    seen.page.get_by_label("Password").fill(PASSWORD)
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_selector("tbody tr")
    seen.page.context.clear_cookies()
    seen.page.get_by_role("link", name="Rollouts").click()
    seen.page.get_by_role("heading", name="Log in").wait_for()
    assert seen.page.locator("tbody tr").count() == 0


def test_a_login_at_a_provider_of_another_site_leads_to_the_page(
    tmp_path: Path, screen: Callable[..., Screen]
) -> None:
    with running_provider() as provider:
        port = free_port()
        # To a browser `localhost` and 127.0.0.1 are two sites: a redirect carries no Strict cookies.
        url = f"http://localhost:{port}"
        oidc = OidcSettings(issuer=provider.url, client_id="fleet", roles={"fleet-operators": "operator"})
        page = PageSettings(port=port, url=url, oidc=oidc)
        with served_page(tmp_path / "folder", devices=3, users={}, settings=page) as served:
            assert served.url == url
            seen = screen(url)
            seen.page.goto(url)
            seen.page.get_by_role("link", name="Log in at the OpenID provider").click()
            seen.page.get_by_text("grace, operator").wait_for()
            seen.page.wait_for_selector("tbody tr")
            cookies = {cookie["name"]: cookie for cookie in seen.page.context.cookies()}
            assert cookies[f"edge-session-{port}"]["sameSite"] == "Strict"
            assert seen.complaints == []


@mark_slow
def test_a_lost_service_is_told_until_it_answers_again(
    small: ServedPage, screen: Callable[..., Screen]
) -> None:
    seen = screen(small.url)
    seen.page.clock.install()
    log_in(seen, "vera")
    seen.page.wait_for_selector("tbody tr")
    seen.page.route("**/api/devices*", lambda route: route.abort("connectionrefused"))
    seen.page.clock.run_for(EVERY_MS)
    seen.page.get_by_text("Connection lost").wait_for()
    assert seen.page.locator("tbody tr").count() == 4
    seen.page.unroute("**/api/devices*")
    seen.page.clock.run_for(EVERY_MS)
    seen.page.get_by_text("Connection lost").wait_for(state="hidden")
    assert own(seen.complaints) == []


def test_every_view_fits_a_phone_and_has_no_serious_accessibility_findings(
    small: ServedPage, screen: Callable[..., Screen]
) -> None:
    seen = screen(small.url, color_scheme="light", **PHONE)
    log_in(seen, "ada")
    for view, title in VIEWS:
        go(seen, view, title)
        seen.page.wait_for_load_state("networkidle")
        fits_and_is_accessible(seen, title)
    go(seen, "devices/home/pi-0003", "device-title")
    seen.page.get_by_role("button", name="Write a note: pi-0003").tap()
    seen.page.get_by_role("dialog").get_by_label("Note").fill("x" * 200)
    fits_and_is_accessible(seen, "dialog")
    assert seen.complaints == []


def fits_and_is_accessible(seen: Screen, name: str) -> None:
    """A view fits the phone; axe-core finds nothing, by all rules in light colours, contrast in dark ones."""
    for scheme, rules in (("light", ()), ("dark", ("color-contrast",))):
        seen.page.emulate_media(color_scheme=scheme)
        assert seen.page.evaluate(WIDTH) == 360, name
        assert seen.violations(*rules) == [], (scheme, name)
        seen.shot(f"service-{name}-{scheme}")


@mark_slow
def test_the_page_writes_commands_as_the_service_does(
    open_page: Callable[..., Screen], served: ServedPage
) -> None:
    seen = open_page("vera")
    script = """async ([words, args]) => {
        const it = await import('/assets/page/command.js');
        return it.commandText(words, args);
    }"""
    for action in ACTIONS.values():
        args = {field.name: SPREAD.get(field.name, "it's $(one) ✓") for field in action.fields}
        args = {"user": "ada", **args}
        words = action.words_in(served.folder)
        assert seen.page.evaluate(script, [words, args]) == action.command(args, served.folder), action.name
