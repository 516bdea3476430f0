"""Sites as network namespaces: each has an interface and an address of its own, and a route to the server.

The process must be root of its own namespaces (`unshare --user --map-root-user --net`): nothing of the
machine's network changes, and everything is gone with the process.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SERVER = "10.77.0.1"
"""The server's address, the same seen from every site."""
OWN_NAMESPACES = ("unshare", "--user", "--map-root-user", "--net", "--fork", "--kill-child")
READY = "ready"
HOLD = f"import sys; print({READY!r}, flush=True); sys.stdin.read()"


def can_have_sites() -> bool:
    """Whether this machine lets a process make network namespaces."""
    tools = all(_is_there(tool) for tool in ("unshare", "nsenter", "ip"))
    return (
        tools and subprocess.run([*OWN_NAMESPACES, "true"], check=False, capture_output=True).returncode == 0
    )


@dataclass(frozen=True)
class Site:
    """A site: `pid` is the process that holds its namespace."""

    name: str
    pid: int

    def command(self, *words: str) -> tuple[str, ...]:
        """The command that runs these words at the site."""
        return ("nsenter", "--target", str(self.pid), "--net", *words)


@contextlib.contextmanager
def sites(names: Sequence[str]) -> Iterator[dict[str, Site]]:
    """Sites while the block lasts, inside the namespaces of this process."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{SERVER}/32", "dev", "lo")
    with contextlib.ExitStack() as held:
        yield {name: held.enter_context(_site(name, number)) for number, name in enumerate(names, start=1)}


@contextlib.contextmanager
def _site(name: str, number: int) -> Iterator[Site]:
    holder = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline().strip() == READY
    site = Site(name, holder.pid)
    try:
        _connect(site, f"site{number}", f"10.77.{number}")
        yield site
    finally:
        holder.stdin.close()
        holder.wait()


def _connect(site: Site, interface: str, prefix: str) -> None:
    """Lay the line from the server to a site."""
    _run("ip", "link", "add", interface, "type", "veth", "peer", "name", "wan", "netns", str(site.pid))
    _run("ip", "address", "add", f"{prefix}.1/24", "dev", interface)
    _run("ip", "link", "set", interface, "up")
    for words in (
        ("link", "set", "lo", "up"),
        ("address", "add", f"{prefix}.2/24", "dev", "wan"),
        ("link", "set", "wan", "up"),
        ("route", "add", "default", "dev", "wan"),
    ):
        _run(*site.command("ip", *words))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, env={**os.environ, "PATH": _search_path()})


def _is_there(tool: str) -> bool:
    return shutil.which(tool, path=_search_path()) is not None


def _search_path() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
