"""Whether a server hears this device: a pure state machine beside the session.

Connected is not heard: the broker may be up and the server not, or of another name. So the device asks for a
blob that nobody has, which a server refuses at once, and says when nobody does. To a server that has no room
now for devices that it does not know it says its birth again later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

ASK_AFTER_S, ASK_EVERY_S = 3.0, 10.0
SAY_AFTER_S = 10.0
AGAIN_AFTER_S = (5.0, 15.0)
"""Between these a birth that was not taken is said again: not all at once."""
NOBODYS = "0" * 64
"""The digest of a blob that nobody has."""


@dataclass(frozen=True)
class Ask:
    """Command: ask the server for a blob that nobody has."""


@dataclass(frozen=True)
class SayBirth:
    """Command: say the birth again."""


@dataclass(frozen=True)
class NobodyAnswers:
    """Command: tell the user that no server has answered for so many seconds."""

    seconds: float


Command = Ask | SayBirth | NobodyAnswers


@dataclass(frozen=True)
class ServerContact:
    """Since when the device is connected and unheard, in seconds, and when what is due."""

    since: float = 0.0
    ask_at: float = math.inf
    say_at: float = math.inf
    birth_at: float = math.inf


def connected(now: float) -> ServerContact:
    """A connection is up."""
    return ServerContact(now, ask_at=now + ASK_AFTER_S, say_at=now + SAY_AFTER_S)


def heard(audience: ServerContact) -> ServerContact:
    """A server has said something."""
    if math.isinf(audience.ask_at) and math.isinf(audience.say_at):
        return audience
    return replace(audience, ask_at=math.inf, say_at=math.inf)


def turned_away(audience: ServerContact, now: float, chance: float) -> ServerContact:
    """A server does not take the birth now; `chance`, from 0 to 1, says when it is said again."""
    first, last = AGAIN_AFTER_S
    return replace(audience, birth_at=now + first + chance * (last - first))


def turn(audience: ServerContact, now: float) -> tuple[ServerContact, list[Command]]:
    """What is due: questions until there is an answer, and now and then a word on that there is none."""
    commands: list[Command] = []
    if now >= audience.birth_at:
        audience, commands = replace(audience, birth_at=math.inf), [SayBirth()]
    if now >= audience.ask_at:
        audience = replace(audience, ask_at=now + ASK_EVERY_S)
        commands.append(Ask())
    if now >= audience.say_at:
        silent = now - audience.since
        audience = replace(audience, say_at=audience.since + 6 * silent)
        commands.append(NobodyAnswers(silent))
    return audience, commands
