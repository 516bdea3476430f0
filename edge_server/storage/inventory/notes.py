"""An operator's note on a device: one line of text."""

from schemas.errors import ConfigError

MOST_LETTERS = 500


def checked_note(note: str) -> str:
    """The note without space around it; raises `ConfigError` if it is no printable line."""
    note = note.strip()
    if len(note) > MOST_LETTERS:
        raise ConfigError(f"the note has {len(note)} letters; at most {MOST_LETTERS} are kept")
    if not note.isprintable():
        raise ConfigError(f"the note {note[:40]!r} has a line break or control characters: write one line")
    return note
