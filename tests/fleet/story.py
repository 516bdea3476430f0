"""One operator, three sites: the whole life of a fleet, over a broker with certificates.

    python -m tests.fleet.story FOLDER BOARDS_PER_SITE [--without-training]

Boards are enrolled from a CSV file and train in a nightly job; one is replaced; a release of the client goes
back by itself; a silent board is alerted and returns; an operator may not revoke; a backup goes on elsewhere.
`--without-training` leaves out the training and the release, which take most of the time.
The process must be root of its own namespaces (`tests.fleet.networks.OWN_NAMESPACES`).
"""

import contextlib
import csv
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.edge_client.agent.client_update.wheels import make_wheel
from tests.fleet.boards import Board, switched_off
from tests.fleet.networks import SERVER, Site, sites
from tests.fleet.office import Office, Webhook, ask, until

SITES = ("barn", "field", "loft")
ROUNDS = 2
PASSPHRASE = "a passphrase for this story alone"
PASSWORD = "long enough for a story"


class Story:
    """The steps, in order; each leaves the fleet as the next one needs it."""

    def __init__(self, folder: Path, places: dict[str, Site], per_site: int, *, trains: bool) -> None:
        self._folder, self._places, self._trains = folder, places, trains
        self._office, self._webhook = Office(folder), Webhook()
        self._names = [f"{site}-{number}" for site in places for number in range(1, per_site + 1)]
        self._shares = len(self._names) + 1
        self.boards: dict[str, Board] = {}

    def enrol_from_a_file(self) -> None:
        """Every board of the file gets an archive; its labels and note are in the inventory."""
        office = self._office
        office.write_settings()
        with (self._folder / "fleet.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["device", "label.site", "label.role", "note", "data"])
            rows.writerows(
                [name, name.rpartition("-")[0], "camera", f"post of {name}", "digits"] for name in self._names
            )
        office.command("enroll", "--from", "fleet.csv", *self._enrolment())
        enrolled = {row["device"] for row in office.json("enroll", "--list", "--authority", office.authority)}
        assert enrolled == set(self._names), enrolled
        for name in self._names:
            self._make(name)

    def _enrolment(self) -> tuple[object, ...]:
        where = ("--authority", self._office.authority, "--federation", "farm", "--out", "archives")
        return (*where, "--host", SERVER, "--signing-key", "signing.key")

    def _make(self, name: str) -> None:
        archive = self._folder / "archives" / f"{name}.tar"
        site, share = self._places[name.rpartition("-")[0]], f"{len(self.boards) + 1}/{self._shares}"
        self.boards[name] = Board(name, site, archive, self._folder / "boards", share)

    def come_alive(self) -> None:
        """All boards connect from their sites, and the inventory shows them with their versions."""
        for board in self.boards.values():
            board.start()
        names = set(self._names)
        until("all boards", lambda: self._office.alive() == names)
        barn = self._office.json("devices", "--where", "site=barn")
        assert [row["device"] for row in barn] == sorted(name for name in names if name.startswith("barn-"))
        assert all(row["versions"]["onnxruntime"] and row["certificate_until"] for row in barn)

    def add_a_nightly_job(self) -> None:
        """A job waits for its time on the schedule."""
        office, count = self._office, len(self._names)
        office.command(
            *("jobs", "add", "nightly", "--cron", "0 2 * * *", "--zone", "Europe/Berlin"),
            *("--min-eligible", count, "--where", "role=camera"),
            *("fedavg", "federation.name=farm", f"num-clients={count}", f"rounds={ROUNDS}"),
            *("data.source=digits", "federation.signing-key=signing.key"),
        )
        assert office.json("jobs", "show", "nightly")["next_at"]

    def train(self) -> None:
        """The job trains now, on request, and leaves a model in the registry."""
        self._office.run_job("nightly")
        assert self._office.json("models", "list", "--registry", self._office.service / "registry")
        until("a model on each board", lambda: all(row["model"] for row in self._office.json("devices")))

    def replace_a_board(self) -> None:
        """A board dies; the new one has its labels and trains in its place, and the old one is not let in."""
        office, old = self._office, f"{SITES[0]}-1"
        new = f"{SITES[0]}-9"
        self.boards.pop(old).stop(power_cut=True)
        office.command("enroll", new, *self._enrolment(), "--data", "digits")
        pid = self._folder / "mosquitto.pid"
        office.command("inventory", "replace", old, new, "--yes", "--mosquitto-pid-file", pid)
        self._make(new)
        self.boards[new].start()
        self._names = sorted({*self._names, new} - {old})
        until("the new board", lambda: office.alive() == set(self._names))
        (row,) = office.json("devices", "--where", f"device={new}")
        assert (row["labels"]["role"], row["replaces"], row["note"]) == ("camera", old, f"post of {old}")
        if self._trains:
            office.run_job("nightly")

    def update_a_client_that_goes_back(self) -> None:
        """A release whose client does not start goes back by itself, and reaches no second group."""
        office, before = self._office, self._office.json("devices", "--where", "site=field")
        make_wheel(self._folder / "wheels", "9.0.0", run="import a_module_that_is_not_there")
        office.command(
            *("client-release", "make", "--wheels", "wheels", "--extras", "", "--signing-key", "signing.key")
        )
        office.command(
            *("client-release", "rollout", "9.0.0", "--where", "site=field", "--canary", 1, "--groups", 1),
            *("--gather", 1, "--watch", 2, "--starts", 2, "--connect-within", 60),
            code=1,
        )
        until("the boards of the field", lambda: office.alive() == set(self._names))
        after = office.json("devices", "--where", "site=field")
        assert [row["versions"] for row in after] == [row["versions"] for row in before]

    def hear_of_a_silent_board(self) -> None:
        """A board that loses its power is alerted by name and site, and resolved when it is back."""
        name = f"{SITES[2]}-1"
        self.boards[name].stop(power_cut=True)
        alert = self._webhook.next(name, "firing")
        assert alert["site"] == SITES[2], alert
        assert name in json.dumps(self._office.json("alerts", "list"))
        self.boards[name].start()
        self._webhook.next(name, "resolved")

    def refuse_an_operator_to_revoke(self) -> None:
        """An operator sets labels over the API and may not revoke; an admin may."""
        office, name = self._office, f"{SITES[1]}-1"
        office.command("users", "add", "ada", "--role", "admin", stdin=PASSWORD + "\n")
        token = office.command("tokens", "make", "oskar", "--role", "operator").strip()
        given = {"federation": "farm", "device": name, "labels": "shift=late"}
        status, answer = ask("/api/actions/devices.label", token, given)
        assert status == 200, answer
        status, answer = ask("/api/actions/devices.revoke", token, {"federation": "farm", "device": name})
        assert (status, "admin" in answer["error"]) == (403, True), answer
        assert office.json("devices", "--where", "shift=late")[0]["device"] == name
        assert "token:oskar" in office.command("audit")
        office.command("audit", "--verify")

    def back_up_while_all_runs(self) -> None:
        """Everything is saved with a passphrase, and every file of the backup is whole."""
        office = self._office
        (self._folder / "passphrase").write_text(PASSPHRASE)
        office.command("backup", "fleet.backup", "--passphrase-file", "passphrase")
        office.command("backup", "--verify", "fleet.backup")

    def go_on_elsewhere(self) -> None:
        """The restored folder has the same devices, job and models, and trains again."""
        office, before = self._office, self._office.json("devices")
        shutil.move(office.authority, self._folder / "burnt-authority")
        shutil.move(office.service, self._folder / "burnt-service")
        office.command("restore", "fleet.backup", "--to", "elsewhere", "--passphrase-file", "passphrase")
        office.service = self._folder / "elsewhere"
        office.authority = office.service / "authority" / office.authority.name
        office.write_settings()
        after = office.json("devices")
        assert [row["device"] for row in after] == [row["device"] for row in before]
        assert office.json("jobs", "show", "nightly")["next_at"]
        office.command("audit", "--verify")
        with office.serving():
            until("all boards again", lambda: office.alive() == set(self._names))
            if self._trains:
                office.run_job("nightly")

    def tell(self) -> None:
        """Go through all steps."""
        self._step(self.enrol_from_a_file)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._webhook.listening())
            stack.enter_context(self._office.broker())
            stack.enter_context(switched_off(self.boards))
            with self._office.serving():
                self._step(self.come_alive)
                self._step(self.add_a_nightly_job)
                if self._trains:
                    self._step(self.train)
                self._step(self.replace_a_board)
                if self._trains:
                    self._step(self.update_a_client_that_goes_back)
                self._step(self.hear_of_a_silent_board)
                self._step(self.refuse_an_operator_to_revoke)
                self._step(self.back_up_while_all_runs)
            self._step(self.go_on_elsewhere)

    def _step(self, step: Callable[[], None]) -> None:
        began = time.monotonic()
        step()
        print(f"{time.monotonic() - began:6.1f} s  {step.__name__.replace('_', ' ')}", flush=True)


def main() -> None:
    """Tell the story in the folder that the command line names."""
    folder, per_site, *words = sys.argv[1:]
    place = Path(folder).resolve()
    place.mkdir(parents=True, exist_ok=True)
    with sites(SITES) as places:
        Story(place, places, int(per_site), trains="--without-training" not in words).tell()


if __name__ == "__main__":
    main()
