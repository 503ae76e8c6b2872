"""The endpoint from which agent programs get completions: one small server per process.

    POST /v1/chat/completions      OpenAI's chat completions
    POST /v1/responses             OpenAI's Responses API
    POST /v1/messages              Anthropic's Messages API
    GET /v1/models

It listens on 127.0.0.1, and SDKs work unchanged. Each episode is a session, whose secret is the API
key. The session's environment (`envs.agents.agent`) answers its requests in
the order of arrival. The standard library's server is fast enough: its overhead is a millisecond,
and a turn of a language model takes much longer.
"""

import json
import os
import re
import socket
import threading
import time

from envs.agents.completions import POLICY
from envs.agents.dialect import COUNTS, DIALECTS
from envs.agents.errors import OVER, Refused
from envs.agents.local_server import LocalHandler, LocalServer, error_body
from envs.agents.origins import CROSSED, thread_of, watch
from envs.agents.session import Call, Session
from envs.agents.threads import silence_late_programs
from envs.agents.upstream import ask_upstream
from envs.errors import BrokenContract

KEEP_ALIVE_SECONDS = 2.0  # after which a waiting client gets a blank, again and again
REFUSAL_SECONDS = 0.5  # delay of the answer to a closed session, so that its program cannot spin
# Codes of refusals that a response may cause: it makes the context long, or is sent back unreadable
POLICYS_OWN = {"context_length_exceeded", "invalid_request_error"}
MODEL = {"id": POLICY, "object": "model", "created": 0, "owned_by": "this run"}
MODEL |= {"type": "model", "display_name": POLICY, "created_at": "1970-01-01T00:00:00Z"}


class Endpoint:
    """A server. `open` begins a session, and `close` ends it.

    port: 0 chooses a free one
    session_of(secret): returns the session of an API key, or None; default: looks in the open ones
    """

    def __init__(self, port: int = 0, session_of=None):
        self.sessions: dict[str, Session] = {}
        self.server = LocalServer(port, _Handler)
        self.server.check_origin = self.check_origin
        self.server.session_of = session_of or self.sessions.get
        self.root = f"http://127.0.0.1:{self.server.server_port}"
        self.base_url = f"{self.root}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def check_origin(self, port: int, session: Session) -> None:
        """Check that a new connection has the key of its own program.

        port: of the client's end
        Refused: it has another program's key, and this program's episode fails
        """
        number = thread_of(port)
        for other in list(self.sessions.values()) if number else []:
            thread = other.thread
            # a program may have ended while requests of it wait, and its number is given anew
            running = thread is not None and thread.is_alive()
            if running and thread.ident == number and other is not session:
                other.fail(BrokenContract(f"{other.name}: {CROSSED}"))
                raise Refused(CROSSED, 403, "forbidden")

    def url_of(self, agent: int) -> str:
        """Return the base URL of an agent of the process.

        Frameworks keep a client for each URL, but agents have event loops of their own.
        """
        return f"{self.root}/agent{agent}/v1"

    def others_wait(self, session: Session) -> bool:
        """Return whether another session has requests beside the one that is being answered."""
        return any(not o.events.empty() for o in list(self.sessions.values()) if o is not session)

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
            reach_directly()
            _ENDPOINT.append(Endpoint())
            silence_late_programs()
            watch(_ENDPOINT[0].server.server_port)
        return _ENDPOINT[0]


def reach_directly() -> None:
    """Let the clients of this process reach 127.0.0.1 where HTTP_PROXY names a proxy."""
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    direct = f"{known},127.0.0.1" if known else "127.0.0.1"
    os.environ.update(no_proxy=direct, NO_PROXY=direct)


class _Handler(LocalHandler):
    """Answers requests. The key is checked before the body is read."""

    first = True  # whether this connection has had no request with a key

    def do_GET(self) -> None:
        if self._path() not in ("/v1/models", f"/v1/models/{POLICY}"):
            if session := self._known():
                session.refused = True
            return self.refuse(self._unknown())
        listed = {"object": "list", "data": [MODEL], "has_more": False}
        found = listed if self._path() == "/v1/models" else MODEL
        self.send(200, json.dumps(found).encode())

    def do_POST(self) -> None:
        session = None
        try:
            session, path = self._session(), self._path()
            dialect = DIALECTS.get(path) or COUNTS.get(path)
            if dialect is None:
                raise self._unknown()
            if self.headers.get_content_type() != "application/json":
                message = "the Content-Type must be application/json"
                raise Refused(message, 415, "unsupported_media_type")
            if self.first:
                self.first = False
                self.server.check_origin(self.client_address[1], session)
            body = self.body()
            if self._for_upstream(session, body):
                answer = ask_upstream(session.upstream, path.removeprefix("/v1"), body)
                session.refused = answer[0] >= 400
                return self.send(*answer)
            if path in COUNTS:
                counted = {"input_tokens": _read(session.count, body, dialect)}
                return self.send(200, json.dumps(counted).encode())
            retries = _read(int, self.headers.get("x-stainless-retry-count") or "0")
            call = _read(session.call, body, retries, dialect)
            session.refused = False
        except Refused as refused:
            if session:
                session.refused = refused.code not in POLICYS_OWN
            return self.refuse(refused)
        self._answer(call)

    def _path(self) -> str:
        """Return the path without an agent and a query.

        Anthropic's SDK adds /v1 to a base URL that has it.
        """
        path = re.sub(r"^/agent\d+(?=/)", "", self.path.partition("?")[0]).rstrip("/")
        return path.replace("/v1/v1/", "/v1/", 1)

    def _unknown(self) -> Refused:
        posts = ", ".join([*DIALECTS, *COUNTS])
        message = (
            f"there is no {self.command} {self.path:.200}, only GET /v1/models and POST {posts}"
        )
        return Refused(message, 404, "not_found")

    def _known(self) -> Session | None:
        """Return the session of the key that the request has, if there is one."""
        given = self.headers.get("x-api-key") or self.headers.get("Authorization") or ""
        return self.server.session_of(given.removeprefix("Bearer ").strip())

    def _session(self) -> Session:
        """Return the session of the request. Refused: its key opens none that goes on"""
        session = self._known()
        if session is None or session.closed:
            time.sleep(REFUSAL_SECONDS)
            raise Refused(f"{OVER}, or the key is wrong", 401, "invalid_api_key")
        return session

    def _for_upstream(self, session: Session, body: bytes) -> bool:
        """Return whether a request is for another model. Refused: there is no upstream for it"""
        model = _read(_model, body)
        if model != POLICY and not session.upstream:
            message = (
                f"the model {model!r:.200} is not served here: {POLICY!r} is, and --upstream URL "
                "names an endpoint for others"
            )
            raise Refused(message, 404, "model_not_found")
        return model != POLICY

    def _answer(self, call: Call) -> None:
        """Wait for the answer and send it. Blanks keep the client from timing out meanwhile."""
        stream, begun = call.request.stream, False
        kind = "text/event-stream" if stream else "application/json"
        while not call.done.wait(KEEP_ALIVE_SECONDS):
            if not begun:
                self.begin_chunks(kind)
                begun = True
            self.chunk(b": wait\n\n" if stream else b" ")
        if isinstance(call.answer, Refused):
            if begun and stream:
                self.chunk(b"event: error\ndata: " + error_body(call.answer) + b"\n\n")
                return self.chunk(b"")
            if begun:  # the status 200 is sent already, so we break the connection
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            return self.refuse(call.answer)
        body = json.dumps(call.answer).encode()
        if not (stream or begun):
            return self.send(200, body)
        if not begun:
            self.begin_chunks(kind)
        for piece in call.dialect.events(call.request, call.answer) if stream else [body]:
            self.chunk(piece)
        self.chunk(b"")


def _model(body: bytes):
    return json.loads(body).get("model")


def _read(function, *arguments):
    """Call a function that reads the body of a request. Refused: it cannot be read"""
    try:
        return function(*arguments)
    except Refused:
        raise
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        message = f"the request cannot be read: {error!r:.300}"
        raise Refused(message, code="invalid_request_error") from error
