"""Loopback receivers: an HTTP server that keeps what is posted, and a small SMTP server."""

import queue
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Posted:
    """A request: its path, headers and body."""

    path: str
    headers: dict[str, str]
    content: bytes


@dataclass
class Hook:
    """An HTTP receiver; it answers with the statuses in `answers`, then with 200."""

    port: int = 0
    posted: "queue.Queue[Posted]" = field(default_factory=queue.Queue)
    answers: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def next(self) -> Posted:
        return self.posted.get(timeout=30)


@contextmanager
def running_hook(*answers: int) -> Iterator[Hook]:
    hook = Hook(answers=list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            status = hook.answers.pop(0) if hook.answers else 200
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            hook.posted.put(Posted(self.path, dict(self.headers), content))

        def log_message(self, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        hook.port = port
        yield hook


@dataclass
class Mailbox:
    """An SMTP server with its mails and logins; it refuses recipients in `unknown`."""

    port: int = 0
    mails: "queue.Queue[str]" = field(default_factory=queue.Queue)
    logins: list[str] = field(default_factory=list)
    unknown: frozenset[str] = frozenset()
    refuses_login: bool = False


@contextmanager
def running_mailbox(**values) -> Iterator[Mailbox]:
    mailbox = Mailbox(**values)

    class Handler(socketserver.StreamRequestHandler):
        def say(self, text: str) -> None:
            self.wfile.write(text.encode() + b"\r\n")

        def handle(self) -> None:
            self.say("220 test")
            for line in self.rfile:
                word = line.decode().strip()
                if self.answer(word, word[:4].upper()):
                    return

        def answer(self, word: str, verb: str) -> bool:
            if verb == "EHLO":
                self.say("250-test\r\n250 AUTH PLAIN")
            elif verb == "AUTH":
                mailbox.logins.append(word.split()[-1])
                self.say("535 wrong" if mailbox.refuses_login else "235 ok")
            elif verb == "RCPT" and any(name in word for name in mailbox.unknown):
                self.say("550 nobody of that name")
            elif verb == "DATA":
                self.say("354 go on")
                lines = iter(self.rfile.readline, b".\r\n")
                mailbox.mails.put(b"".join(lines).decode())
                self.say("250 taken")
            elif verb == "QUIT":
                self.say("221 bye")
                return True
            else:
                self.say("250 ok")
            return False

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        mailbox.port = port
        yield mailbox


@contextmanager
def serving(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
