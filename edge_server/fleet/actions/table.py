"""Every action: the page's buttons, the API, the commands shown, roles and audit log come from this table.

Role, scope and arguments are checked before an action, and what has changed goes to the audit log.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from edge_server.fleet.actions import alerts, devices, jobs, people
from edge_server.fleet.actions.action import Action, Change, Desk, Field
from edge_server.fleet.diagnostics.remote_part import LOG_LINES
from edge_server.fleet.people.values import Actor, NotAllowed, check_role
from edge_server.storage import audit_log
from schemas.errors import ConfigError, nearest

_FEDERATION, _DEVICE = Field("federation"), Field("device")
_JOB = Field("job")
_USER, _TOKEN = Field("user"), Field("token")
_ROLE = Field("role", "Role", "role")
_PASSWORD = Field("password", "Password", "secret", hint="at least 10 characters")

_ALL = (
    Action(
        "devices.label",
        "Set labels",
        "Labels choose devices for jobs, rollouts and this list; yours win over those that a device states.",
        "inventory label {device} {labels...} --federation {federation}",
        (
            _FEDERATION,
            _DEVICE,
            Field("labels", "Labels", "text", hint="site=barn role=camera; site- removes a label"),
        ),
        devices.set_labels,
        on_device=True,
        recorded="label",
    ),
    Action(
        "devices.note",
        "Write a note",
        "A line for people, such as where the board hangs.",
        "inventory note {device} {note} --federation {federation}",
        (_FEDERATION, _DEVICE, Field("note", "Note", "text", optional=True)),
        devices.set_note,
        on_device=True,
        recorded="note",
    ),
    Action(
        "devices.doctor",
        "Doctor",
        "The device checks itself, for up to two minutes on a small board; its page shows the findings.",
        "doctor {device} --federation {federation}",
        (_FEDERATION, _DEVICE),
        devices.doctor,
        on_device=True,
    ),
    Action(
        "devices.logs",
        "Logs",
        "The device sends the last lines of its log, which this page shows.",
        f"logs {{device}} --lines {LOG_LINES} --federation {{federation}}",
        (_FEDERATION, _DEVICE),
        devices.logs,
        on_device=True,
    ),
    Action(
        "devices.revoke",
        "Revoke",
        "The device's certificates are revoked: it is not let in any more until it is enrolled again.",
        "revoke {device} --federation {federation}",
        (_FEDERATION, _DEVICE),
        devices.revoke,
        on_device=True,
        grave=True,
        recorded="revoke",
    ),
    Action(
        "jobs.start",
        "Start",
        "The job runs as soon as it is its turn; a paused one continues where it was.",
        "jobs start {job}",
        (_JOB,),
        jobs.start_job,
    ),
    Action(
        "jobs.pause",
        "Pause",
        "The job's run is suspended, and continues when the job is started again.",
        "jobs pause {job}",
        (_JOB,),
        jobs.pause_job,
    ),
    Action(
        "jobs.stop",
        "Stop",
        "The job's run ends, and its schedule is followed no more until the job is started again.",
        "jobs stop {job}",
        (_JOB,),
        jobs.stop_job,
        grave=True,
    ),
    Action(
        "jobs.add",
        "Add a job",
        "The service runs the federation, once or by a schedule.",
        "jobs add {job} {words...} --cron {cron} --every {every} --zone {zone}"
        " --where {where} --min-eligible {min_eligible}",
        (
            Field("job", "Name", "text"),
            Field(
                "words",
                "Federation",
                "text",
                hint="a file in the service's folder, or a recipe; then key=value: home.toml rounds=20",
            ),
            Field("cron", "At these times", "text", optional=True, hint="0 2 * * SUN; empty: once, now"),
            Field("every", "Or every", "text", optional=True, hint="30min, 6h, 1d"),
            Field("zone", "Time zone", "text", optional=True, hint="Europe/Berlin; empty: UTC"),
            Field(
                "where", "Only devices where", "text", optional=True, hint="site=barn; empty: as in the file"
            ),
            Field("min_eligible", "Only while as many devices are online", "text", optional=True, hint="12"),
        ),
        jobs.add_job,
    ),
    Action(
        "rollouts.start",
        "Roll out",
        "A job brings the version to the devices of its federation, group by group, and stops at failures.",
        "jobs add {job} {version} --action rollout --federation {federation}",
        (Field("version"), Field("federation"), Field("job", "Name of the job", "text")),
        jobs.start_rollout,
    ),
    Action(
        "rollouts.stop",
        "Stop",
        "No further device gets the version; those that serve it keep it. The job can be started again.",
        "jobs stop {job}",
        (_JOB,),
        jobs.stop_job,
        grave=True,
    ),
    Action(
        "rollouts.withdraw",
        "Withdraw",
        "Every device of this version goes back to the model before; its rollout is stopped.",
        "jobs add {job} {version} --action rollout --federation {federation} -- --withdraw",
        (Field("version"), Field("federation"), Field("job", "Name of the job", "text")),
        jobs.withdraw,
        grave=True,
    ),
    Action(
        "alerts.silence",
        "Silence",
        "Alerts of these devices are listed, but not sent, until the silence ends.",
        "alerts silence --where {where} --for {lasts} --reason {reason}",
        (
            Field("where", "Devices where", "text", hint="site=barn, or device=pi-7"),
            Field("lasts", "For how long", "text", hint="30min, 2h, 3d"),
            Field("reason", "Reason", "text"),
        ),
        alerts.silence,
        recorded="silence alerts",
    ),
    Action(
        "alerts.acknowledge",
        "Acknowledge",
        "You have seen the alert: nobody hears of it again until it is resolved.",
        "alerts acknowledge {rule} {name} --kind {kind} --federation {federation}",
        (Field("rule"), Field("kind"), Field("name"), Field("federation", optional=True)),
        alerts.acknowledge,
        recorded="acknowledge alert",
    ),
    Action(
        "alerts.unsilence",
        "End the silence",
        "Alerts of these devices are sent again.",
        "alerts silence --end {number}",
        (Field("number"),),
        alerts.end_silence,
        recorded="end silence of alerts",
    ),
    Action(
        "users.add",
        "Add a user",
        "The password is passed on by you; the user changes it on this page.",
        "users add {user} --role {role}",
        (Field("user", "Name", "text"), _ROLE, _PASSWORD),
        people.add_user,
    ),
    Action(
        "users.role",
        "Change the role",
        "The new role holds at once, also where the user is logged in.",
        "users role {user} {role}",
        (_USER, _ROLE),
        people.set_role,
    ),
    Action(
        "users.password",
        "Set the password",
        "The user is logged out everywhere.",
        "users password {user}",
        (_USER, _PASSWORD),
        people.set_password,
    ),
    Action(
        "users.unlock",
        "Unlock",
        "After failed logins the user may try again at once.",
        "users unlock {user}",
        (_USER,),
        people.unlock_user,
    ),
    Action(
        "users.remove",
        "Remove",
        "The user is logged out and cannot log in any more. The audit log keeps the name.",
        "users remove {user}",
        (_USER,),
        people.remove_user,
        grave=True,
    ),
    Action(
        "own.password",
        "Change my password",
        "You are logged out everywhere.",
        "users password {user}",
        (
            Field("old_password", "Old password", "secret"),
            Field("password", "New password", "secret", hint="at least 10 characters"),
        ),
        people.set_own_password,
    ),
    Action(
        "tokens.make",
        "Make a token",
        "For a program that uses the API. The token is shown once.",
        "tokens make {token} --role {role} --where {where} --days {days}",
        (
            Field("token", "Name", "text"),
            _ROLE,
            Field(
                "where", "Only devices where", "text", optional=True, hint="site=barn; empty: every device"
            ),
            Field("days", "Days until its end", "text", optional=True, hint=people.USUAL_DAYS),
        ),
        people.make_token,
    ),
    Action(
        "tokens.revoke",
        "Revoke",
        "Programs with this token are refused at once.",
        "tokens revoke {token}",
        (_TOKEN,),
        people.revoke_token,
        grave=True,
    ),
)

ACTIONS: Mapping[str, Action] = MappingProxyType({action.name: action for action in _ALL})


def perform(desk: Desk, name: str, given: Mapping[str, Any], actor: Actor, now: float) -> Change:
    """Do an action; raises `NotAllowed`, or `ConfigError` with nothing changed."""
    action = action_named(name)
    check_allowed(action, actor)
    change = action.execute(desk, action.check_arguments(given), actor, now)
    if not change.recorded:
        audit_log.append_entry(
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
