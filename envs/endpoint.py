"""The endpoint that agent programs ask for completions: one small server per process.

    POST /v1/chat/completions      GET /v1/models

It listens on 127.0.0.1 and is OpenAI's interface, so any SDK works. Each episode is a session with
a secret of its own, which is the API key. A request waits until its session's environment answers
it (`envs.agent`), in the order of arrival. The standard library's server is enough: a turn of a
language model takes much longer than its overhead of a millisecond.
"""

import hashlib
import json
import queue
import secrets
import socket
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from envs.completions import POLICY, Refused, Request, chunks, request_of

ALIVE = 2.0  # seconds of silence after which a waiting client gets a blank
CLOSED = 0.5  # seconds that the answer to a closed session takes, lest its program spins


class Call:
    """A request that waits for its answer."""

    def __init__(self, request: Request):
        self.request, self.answer, self.done = request, None, threading.Event()


class Session:
    """The calls of one episode. `events` brings them, and at last the program's end, in order.

    check(request): raises Refused for what this run cannot answer
    strict, upstream: see `Endpoint`
    """

    def __init__(self, check=lambda request: None, strict: bool = True, upstream: str = ""):
        self.check, self.strict, self.upstream = check, strict, upstream
        self.secret, self.events, self.closed = secrets.token_urlsafe(16), queue.Queue(), False
        self.calls: dict[str, Call] = {}  # the newest of each body, for retries
        self.lock = threading.Lock()

    def call(self, body: bytes, retry: bool) -> Call:
        """Return the Call of a request: a new one, or the one that is asked for again."""
        key = hashlib.sha256(body).hexdigest()
        with self.lock:
            if retry and key in self.calls:  # a program may also repeat itself on purpose
                return self.calls[key]
            request = request_of(json.loads(body), self.strict)
            self.check(request)
            self.calls[key] = call = Call(request)
            self.events.put(call)
        return call

    def close(self) -> None:
        """Refuse what is asked from now on, and let go of who waits."""
        self.closed = True
        with self.lock:
            for call in self.calls.values():
                call.done.set()


class Endpoint:
    """The server of this process. `open` begins a session, and `close` ends it."""

    def __init__(self):
        self.sessions: dict[str, Session] = {}
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.sessions = self.sessions
        self.base_url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def open(self, session: Session) -> None:
        self.sessions[session.secret] = session

    def close(self, session: Session) -> None:
        session.close()
        self.sessions.pop(session.secret, None)


_ENDPOINT, _LOCK = [], threading.Lock()


def endpoint() -> Endpoint:
    """Return this process's server; it starts when it is first needed."""
    with _LOCK:
        if not _ENDPOINT:
            _ENDPOINT.append(Endpoint())
        return _ENDPOINT[0]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024  # all agents of a large batch may connect at once

    def handle_error(self, request, client_address) -> None:
        """A client that went away is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args) -> None:
        """Say nothing: the run's terminal is for the run."""

    def do_GET(self) -> None:
        if self.path.rstrip("/") != "/v1/models":
            return self._refuse(Refused(f"there is no {self.path}", 404, "not_found"))
        model = {"id": POLICY, "object": "model", "created": 0, "owned_by": "this run"}
        self._send(200, json.dumps({"object": "list", "data": [model]}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            session = self._session()
            if self.path.rstrip("/") != "/v1/chat/completions":
                raise Refused(f"there is no {self.path}", 404, "not_found")
            asked = json.loads(body)
            if asked.get("model") != POLICY:
                return self._forward(session, body, asked.get("model"))
            retry = int(self.headers.get("x-stainless-retry-count") or 0) > 0
            self._answer(session, session.call(body, retry))
        except Refused as refused:
            self._refuse(refused)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            said = f"the request cannot be read: {error!r}"
            self._refuse(Refused(said, code="invalid_request_error"))

    def _session(self) -> Session:
        secret = (self.headers.get("Authorization") or "").removeprefix("Bearer ").strip()
        session = self.server.sessions.get(secret)
        if session is None or session.closed:
            time.sleep(CLOSED)
            raise Refused("this episode is over, or the key is wrong", 401, "invalid_api_key")
        return session

    def _answer(self, session: Session, call: Call) -> None:
        """Wait for the answer, and send it. Blanks keep a client from timing out meanwhile."""
        stream, begun = call.request.stream, False
        while not call.done.wait(ALIVE):
            if not begun:
                self._begin(stream)
                begun = True
            self._chunk(b": wait\n\n" if stream else b" ")
        if call.answer is None:
            if begun:  # too late for a status: the client sees that the connection breaks
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            raise Refused("this episode is over", 401, "invalid_api_key")
        if stream and not begun:
            self._begin(stream)
        if stream:
            for piece in chunks(call.answer, call.request.stream_usage):
                self._chunk(b"data: " + json.dumps(piece).encode() + b"\n\n")
            self._chunk(b"data: [DONE]\n\n")
            return self._chunk(b"")
        body = json.dumps(call.answer).encode()
        if not begun:
            return self._send(200, body)
        self._chunk(body)
        self._chunk(b"")

    def _forward(self, session: Session, body: bytes, model) -> None:
        """Ask the upstream endpoint, whose answers are never samples."""
        if not session.upstream:
            said = f"the model {model!r} is not served here: {POLICY!r} is, and --upstream URL"
            raise Refused(f"{said} names an endpoint for others", 404, "model_not_found")
        headers = {"Content-Type": "application/json"}
        url = f"{session.upstream.rstrip('/')}/chat/completions"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
                self._send(answer.status, answer.read(), answer.headers["Content-Type"])
        except urllib.error.HTTPError as error:
            self._send(error.code, error.read(), error.headers["Content-Type"])
        except OSError as error:
            raise Refused(f"--upstream {session.upstream}: {error}", 502, "upstream") from error

    def _refuse(self, refused: Refused) -> None:
        kind = "invalid_request_error" if refused.status < 500 else "server_error"
        error = {"message": str(refused), "type": kind, "param": None, "code": refused.code}
        self._send(refused.status, json.dumps({"error": error}).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _begin(self, stream: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
