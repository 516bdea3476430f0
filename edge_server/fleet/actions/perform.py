"""Performs actions: role, scope and arguments are checked, and what has changed goes to the audit log."""

from collections.abc import Mapping
from typing import Any

from edge_server.fleet.actions.action import Action, Change, Desk
from edge_server.fleet.actions.table import ACTIONS
from edge_server.fleet.people.roles import NotAllowed, check_role
from edge_server.fleet.people.values import Actor
from edge_server.storage import audit_log
from schemas.errors import ConfigError, nearest


def perform(desk: Desk, name: str, given: Mapping[str, Any], actor: Actor, now: float) -> Change:
    """Do an action; raises `NotAllowed`, or `ConfigError` with nothing changed."""
    action = action_named(name)
    check_allowed(action, actor)
    change = action.execute(desk, action.checked(given), actor, now)
    if not change.recorded:
        audit_log.append(
            desk.folder.audit,
            who=actor.who,
            what=action.recorded or action.name,
            target=change.target,
            before=change.before,
            after=change.after,
            at=now,
        )
    return change


def action_named(name: str) -> Action:
    """The action of that name; raises `ConfigError`."""
    if name not in ACTIONS:
        raise ConfigError(f"there is no action '{name}'{nearest(name, ACTIONS)}")
    return ACTIONS[name]


def allowed_actions(actor: Actor) -> list[Action]:
    """The actions that somebody may do, apart from the devices of a token's selector."""
    return [action for action in ACTIONS.values() if _is_allowed(action, actor)]


def check_allowed(action: Action, actor: Actor) -> None:
    """Raise `NotAllowed` unless the role, and a token's selector, allow the action."""
    check_role(actor.role, action.name)
    if actor.where and not action.on_device:
        raise NotAllowed(
            f"this token is for the devices where {actor.where}, and {action.name} is not about one"
        )


def _is_allowed(action: Action, actor: Actor) -> bool:
    try:
        check_allowed(action, actor)
    except NotAllowed:
        return False
    return True
