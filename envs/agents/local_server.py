"""An HTTP server for programs of this machine, which trusts nobody who connects.

Other users of the machine can connect to it, and so can web pages in a browser here. It refuses
what a page sends (a foreign Host, or an Origin), limits the size of a request, the time that it may
take to arrive and the number of connections, and survives a lack of file descriptors. It knows
nothing of the paths and keys that `envs.agents.endpoint` serves.
"""

import errno
import json
import math
import re
import resource
import socket
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from common.awake import awake_seconds
from envs.agents.errors import Refused

IDLE_SECONDS = 60.0  # that a connection may wait for its next request, or for the client to read
REQUEST_SECONDS = 30.0  # that a request may take from its first byte to its last
BACK_OFF_SECONDS = 0.1  # between attempts to accept a connection without a free descriptor
MAX_BODY = 2**24  # bytes
MAX_CONNECTIONS = 4096
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?", re.IGNORECASE)


class LocalServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1. port: 0 chooses a free one. OSError, OverflowError: it cannot."""

    daemon_threads = True
    request_queue_size = 1024  # all agents of a large batch may connect at once

    def __init__(self, port: int, handler: type["LocalHandler"]):
        # connection -> when it is dropped, unless its next request is complete; inf: it is
        self.deadlines: dict[socket.socket, float] = {}
        super().__init__(("127.0.0.1", port), handler)

    def get_request(self):
        """Accept a connection. Without a free descriptor, one that waits is dropped."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in EXHAUSTED:
                self.drop_oldest()
                time.sleep(BACK_OFF_SECONDS)  # the next attempt would come, and fail, at once
            raise

    def process_request(self, request, client_address) -> None:
        # half of the descriptors are left to the process that runs the server
        room = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        if len(self.deadlines) >= room and not self.drop_oldest():
            return self.shutdown_request(request)
        self.deadlines[request] = awake_seconds() + IDLE_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:
        self.deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Drop the connections whose time is up; `serve_forever` calls this twice a second."""
        now = awake_seconds()
        for connection, deadline in dict(self.deadlines).items():
            if deadline < now:
                self.drop(connection)

    def drop_oldest(self) -> bool:
        """Drop the connection that would be dropped next. False: all have sent their requests."""
        deadlines = dict(self.deadlines)
        oldest = min(deadlines, key=deadlines.get, default=None)
        if oldest is None or deadlines[oldest] == math.inf:
            return False
        self.drop(oldest)
        return True

    def drop(self, connection: socket.socket) -> None:
        self.deadlines.pop(connection, None)
        with suppress(OSError):  # its thread has closed it
            connection.shutdown(socket.SHUT_RDWR)  # ends the thread, which waits for more

    def handle_error(self, request, client_address) -> None:
        """Ignore errors of connections: the client is gone."""


class LocalHandler(BaseHTTPRequestHandler):
    """The requests of one connection. `do_GET` and `do_POST` of a subclass answer them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS
    unread = False  # whether a request has a body that nobody has read

    def log_message(self, *args) -> None:
        """Print nothing: the terminal shows the run."""

    def handle_one_request(self) -> None:
        self._expect_within(IDLE_SECONDS)
        self.rfile.peek(1)  # waits for the first byte
        self._expect_within(REQUEST_SECONDS)
        self.unread = False
        super().handle_one_request()
        if self.unread:
            self._end_unread()

    def _expect_within(self, seconds: float) -> None:
        self.server.deadlines[self.connection] = awake_seconds() + seconds

    def parse_request(self) -> bool:
        """Parse the head of a request. Refuse it if a web page may have sent it: 403."""
        if not super().parse_request():
            return False
        self.unread = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        hosts = self.headers.get_all("Host", [])
        if len(hosts) == 1 and LOCAL_HOST.fullmatch(hosts[0]) and "Origin" not in self.headers:
            return True
        message = "only programs of this machine are answered: the Host must be localhost or "
        self.refuse(Refused(f"{message}127.0.0.1, without an Origin", 403, "forbidden"))
        return False

    def body(self) -> bytes:
        """Read the body. Refused: it is too long, or its length is unclear"""
        lengths = self.headers.get_all("Content-Length", [])
        valid = len(lengths) == 1 and re.fullmatch("[0-9]{1,18}", lengths[0])
        if "Transfer-Encoding" in self.headers or not valid:
            raise Refused("a request needs one Content-Length, its bytes", 411, "length_required")
        if int(lengths[0]) > MAX_BODY:
            message = f"a request has {MAX_BODY} bytes at most"
            raise Refused(message, 413, "request_too_large")
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
            raise ConnectionError("the client has left, or was too slow")
        self.unread = False
        self._expect_within(math.inf)
        return body

    def _end_unread(self) -> None:
        """End the connection behind a body that was refused: its bytes are no new request.

        The client may still be sending. If we closed at once, it would not get our answer.
        """
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_WR)
        left = MAX_BODY
        while left > 0 and (block := self.connection.recv(2**16)):
            left -= len(block)

    def refuse(self, refused: Refused) -> None:
        # SDKs obey the header; without it they may ask again for what can never be answered
        retry = {} if refused.status >= 500 else {"x-should-retry": "false"}
        self.send(refused.status, error_body(refused), headers=retry)

    def send(
        self, status: int, body: bytes, kind: str = "application/json", headers: dict | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        if self.unread:
            self.send_header("Connection", "close")
        super().end_headers()

    def begin_chunks(self, kind: str) -> None:
        """Begin an answer of unknown length; an empty chunk ends it."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def error_body(refused: Refused) -> bytes:
    """Return the JSON of an error, as OpenAI writes it and, with "type", Anthropic."""
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    error = {"message": str(refused), "type": kind, "param": None, "code": refused.code}
    return json.dumps({"type": "error", "error": error}).encode()
