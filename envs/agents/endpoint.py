"""The endpoint from which agent programs get completions: one small server per process.

    POST /v1/chat/completions      GET /v1/models

It listens on 127.0.0.1 and has OpenAI's interface, so any SDK works. Each episode is a session,
whose secret is the API key. The session's environment (`envs.agents.agent`) answers its requests in
the order of arrival. The standard library's server is fast enough: its overhead is a millisecond,
and a turn of a language model takes much longer.
"""

import hashlib
import json
import math
import os
import queue
import secrets
import socket
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from envs.agents.completions import POLICY, chunks, with_all_choices
from envs.agents.requests import Refused, Request, request_of

KEEP_ALIVE_SECONDS = 2.0  # after which a waiting client gets a blank, again and again
REFUSAL_SECONDS = 0.5  # delay of the answer to a closed session, so that its program cannot spin
IDLE_SECONDS = 60.0  # after which the connection of an inactive client is closed
UPSTREAM_SECONDS = 600.0  # time limit for an answer of the upstream endpoint
CALLS_KEPT = 16  # answered calls of a session that a retry can still get
ENDED = ("this episode is over", 401, "invalid_api_key")


class Call:
    """A request that waits for its answer."""

    def __init__(self, key: str, request: Request):
        self.key, self.request = key, request
        self.n = request.sampling.extra.get("n", 1)  # number of answers that make the completion
        self.answers, self.answer, self.done = [], None, threading.Event()

    def give(self, answer: dict | Refused) -> None:
        """Add an answer, or refuse the request. It is done with n answers or a refusal."""
        self.answers.append(answer)
        refused = isinstance(answer, Refused)
        if refused or len(self.answers) == self.n:
            self.answer = answer if refused or self.n == 1 else with_all_choices(self.answers)
            self.done.set()


class Session:
    """The calls of one episode. The queue `events` has them in order, and then the program's end.

    check(request): returns the tokens of its prompt, or raises Refused if it cannot be answered
    sampling, upstream: see `envs.agents.agent.AgentEnv`
    """

    def __init__(self, check=lambda request: 0, sampling: str = "refuse", upstream: str = ""):
        self.check, self.sampling, self.upstream = check, sampling, upstream
        self.secret, self.events, self.closed = secrets.token_urlsafe(16), queue.Queue(), False
        self.rewards: list[float] = []  # the program's threads append to it
        self.calls: list[Call] = []  # waiting ones, and the last answered ones for retries
        self.lock = threading.Lock()

    def call(self, body: bytes, retry: bool) -> Call:
        """Return the Call of a request: a new one, or the earlier one that a retry repeats."""
        key = hashlib.sha256(body).hexdigest()
        with self.lock:
            if self.closed:
                raise Refused(*ENDED)
            same = [call for call in self.calls if call.key == key]
            if retry and same:  # an equal request that is no retry is a new call
                return same[-1]
            request = request_of(json.loads(body), self.sampling)
            request.tokens = self.check(request)
            call = Call(key, request)
            waiting = [old for old in self.calls[:-CALLS_KEPT] if not old.done.is_set()]
            self.calls = [*waiting, *self.calls[-CALLS_KEPT:], call]
            for _ in range(call.n):
                self.events.put(call)
            return call

    def take_rewards(self) -> float:
        """Return the sum of the rewards since the last call of this method."""
        return math.fsum(self.rewards.pop(0) for _ in range(len(self.rewards)))

    def close(self) -> None:
        """Refuse the waiting calls and all later ones."""
        with self.lock:
            self.closed = True
            for call in self.calls:
                if not call.done.is_set():
                    call.give(Refused(*ENDED))


class Endpoint:
    """A server. `open` begins a session, and `close` ends it.

    port: 0 chooses a free one
    session_of(secret): returns the session of an API key, or None; default: looks in the open ones
    """

    def __init__(self, port: int = 0, session_of=None):
        self.sessions: dict[str, Session] = {}
        self.server = _Server(("127.0.0.1", port), _Handler)
        self.server.session_of = session_of or self.sessions.get
        self.base_url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def open(self, session: Session) -> None:
        self.sessions[session.secret] = session

    def close(self, session: Session) -> None:
        session.close()
        self.sessions.pop(session.secret, None)


_ENDPOINT, _LOCK = [], threading.Lock()


def endpoint() -> Endpoint:
    """Return this process's server, which the first call starts."""
    with _LOCK:
        if not _ENDPOINT:
            _ENDPOINT.append(Endpoint())
        return _ENDPOINT[0]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024  # all agents of a large batch may connect at once

    def handle_error(self, request, client_address) -> None:
        """Ignore errors of connections: the client is gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS

    def log_message(self, *args) -> None:
        """Print nothing: the terminal shows the run."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0].rstrip("/") != "/v1/models":
            return self._refuse(Refused(f"there is no {self.path}", 404, "not_found"))
        model = {"id": POLICY, "object": "model", "created": 0, "owned_by": "this run"}
        self._send(200, json.dumps({"object": "list", "data": [model]}).encode())

    def do_POST(self) -> None:
        try:
            body = self._body()
            session = self._session()
            if self.path.partition("?")[0].rstrip("/") != "/v1/chat/completions":
                raise Refused(f"there is no {self.path}", 404, "not_found")
            call = self._call(session, body)
        except Refused as refused:
            return self._refuse(refused)
        if call is None:
            return self._forward(session, body)
        self._answer(call)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length") or "0"
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            self.close_connection = True  # it is unknown where the next request begins
            raise Refused("a request needs a Content-Length, its bytes", 411, "length_required")
        return self.rfile.read(int(length))

    def _session(self) -> Session:
        secret = (self.headers.get("Authorization") or "").removeprefix("Bearer ").strip()
        session = self.server.session_of(secret)
        if session is None or session.closed:
            time.sleep(REFUSAL_SECONDS)
            raise Refused("this episode is over, or the key is wrong", 401, "invalid_api_key")
        return session

    def _call(self, session: Session, body: bytes) -> Call | None:
        """Return the call of a request; None if it is for another model."""
        try:
            model = json.loads(body).get("model")
            if model != POLICY and session.upstream:
                return None
            if model != POLICY:
                message = (
                    f"the model {model!r} is not served here: {POLICY!r} is, and --upstream URL "
                    "names an endpoint for others"
                )
                raise Refused(message, 404, "model_not_found")
            retry = int(self.headers.get("x-stainless-retry-count") or 0) > 0
            return session.call(body, retry)
        except Refused:
            raise
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            message = f"the request cannot be read: {error!r}"
            raise Refused(message, code="invalid_request_error") from error

    def _answer(self, call: Call) -> None:
        """Wait for the answer and send it. Blanks keep the client from timing out meanwhile."""
        stream, begun = call.request.stream, False
        while not call.done.wait(KEEP_ALIVE_SECONDS):
            if not begun:
                self._begin(stream)
                begun = True
            self._chunk(b": wait\n\n" if stream else b" ")
        if isinstance(call.answer, Refused):
            if begun:  # the status 200 is sent already, so we break the connection
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            return self._refuse(call.answer)
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

    def _forward(self, session: Session, body: bytes) -> None:
        """Let the upstream endpoint answer. Its answers are never trained on."""
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("UPSTREAM_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        url = f"{session.upstream.rstrip('/')}/chat/completions"
        try:
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=UPSTREAM_SECONDS) as answer:
                self._send(answer.status, answer.read(), answer.headers["Content-Type"])
        except urllib.error.HTTPError as error:
            self._send(error.code, error.read(), error.headers["Content-Type"])
        except (OSError, ValueError, HTTPException) as error:
            message = f"--upstream {session.upstream}: {error!r}"
            self._refuse(Refused(message, 502, "upstream"))

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
