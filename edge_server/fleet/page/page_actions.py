"""The actions in the form that the page shows."""

from collections.abc import Mapping
from typing import Any

from edge_server.fleet.actions.action import Action, Desk
from edge_server.fleet.actions.table import action_named, allowed_actions, perform
from edge_server.fleet.page.device_rows import Json
from edge_server.fleet.people.values import Actor
from schemas.base import fields_of


class PageActions:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def forms(self, actor: Actor) -> list[Json]:
        local = self._is_local(actor)
        return [
            self._form(action) for action in allowed_actions(actor) if local or action.name != "own.password"
        ]

    def perform(self, name: str, given: Mapping[str, Any], actor: Actor, now: float) -> Json:
        change = perform(self._desk, name, given, actor, now)
        action = action_named(name)
        shown = {"user": actor.who.partition(":")[2], **action.check_arguments(given)}
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
            **fields_of(action, "name", "title", "about", "grave"),
            "words": action.words_in(self._desk.folder),
            "fields": [vars(field) for field in action.fields],
        }
