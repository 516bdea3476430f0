"""Nouns with their counts, for messages."""


def format_count(count: int, thing: str) -> str:
    """A count with its noun: `1 round`, `2 rounds`, `0 boxes`, `2 classes`."""
    return f"{count} {in_number(count, thing)}"


def in_number(count: int, thing: str) -> str:
    """A noun as it stands behind a count: `round` behind 1, else `rounds`."""
    if count == 1:
        return thing
    return f"{thing}es" if thing.endswith(("s", "x", "ch")) else f"{thing}s"
