"""The page as a part of the service: it begins with the service, and again when the first user is made."""

import contextlib
import logging
import shlex
from collections.abc import Mapping
from typing import Any

from edge_server.fleet.actions.action import Action, Desk
from edge_server.fleet.actions.perform import action_named, allowed_actions, perform
from edge_server.fleet.diagnostics.kept_answers import Diagnostics
from edge_server.fleet.diagnostics.remote_part import RemotePart
from edge_server.fleet.page.interfaces import Json
from edge_server.fleet.page.lists import FolderLists
from edge_server.fleet.page.server import has_users, page_host, serve_page
from edge_server.fleet.part import Part, ServiceContext
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import Actor
from edge_server.storage.service_folder import ServiceFolder

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
"""Seconds between two looks for a first user."""


class PageActions:
    """The actions in the form that the page shows."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def forms(self, actor: Actor) -> list[Json]:
        """The actions that somebody may do."""
        local = self._is_local(actor)
        return [
            self._form(action) for action in allowed_actions(actor) if local or action.name != "own.password"
        ]

    def perform(self, name: str, given: Mapping[str, Any], actor: Actor, now: float) -> Json:
        change = perform(self._desk, name, given, actor, now)
        action = action_named(name)
        shown = {"user": actor.who.partition(":")[2], **action.checked(given)}
        return {
            "said": change.said,
            "secret": change.secret,
            "command": action.command(shown, self._desk.folder),
        }

    def _is_local(self, actor: Actor) -> bool:
        """Whether somebody has a password here."""
        kind, _, name = actor.who.partition(":")
        user = self._desk.people.user(name) if kind == "user" else None
        return user is not None and user.subject is None

    def _form(self, action: Action) -> Json:
        return {
            "name": action.name,
            "title": action.title,
            "about": action.about,
            "words": action.words_in(self._desk.folder),
            "fields": [vars(field) for field in action.fields],
            "grave": action.grave,
        }


class PagePart(Part):
    """Serves the page; without any user it listens at this machine alone, until there is one."""

    def __init__(self, context: ServiceContext, remote: RemotePart) -> None:
        self._settings = context.settings.page
        self._people = People(context.folder.people)
        diagnostics = Diagnostics(remote.request)
        self._desk = Desk(context.folder, context.settings, self._people, diagnostics)
        self._lists = FolderLists(
            context.folder,
            self._people,
            jobs_at_once=context.settings.jobs.at_once,
            diagnostics=diagnostics.of_device,
        )
        self._setup = first_admin_command(context.folder)
        self._served = contextlib.ExitStack()
        self._host = ""
        self._next_look = float("-inf")
        self.url = ""
        self.listens_at = ("", 0)

    def begin(self) -> None:
        """Serve the page; raises `ConfigError` where it cannot listen."""
        self._host = page_host(self._settings, self._people)
        served = self._served.enter_context(
            serve_page(
                self._settings,
                self._people,
                lists=self._lists,
                actions=PageActions(self._desk),
                setup=self._setup,
            )
        )
        self.url, self.listens_at = served.url, served.address
        log.info("the page is at %s", self.url)
        if not has_users(self._settings, self._people):
            log.warning("nobody can log in yet; the first admin is made by: %s", self._setup)

    def tick(self, now: float) -> None:
        """Listen at the address of the settings as soon as there is a user."""
        if self._host == self._settings.host or now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        if page_host(self._settings, self._people) != self._host:
            self._served.close()
            self.begin()

    def stop(self) -> None:
        """End the page, and close its files."""
        self._served.close()
        self._lists.close()
        self._people.close()


def first_admin_command(folder: ServiceFolder) -> str:
    """The command that makes the first admin."""
    words = ["edge-server", "users", "add", "NAME", "--role", "admin", "--service", str(folder.path)]
    return shlex.join(words)
