"""The endpoint as a hostile neighbour sees it: another user of the machine, or a web page."""

import errno
import json
import os
import re
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
from agent_programs import post

from envs.agents import endpoint, local_server
from envs.agents.endpoint import Endpoint
from envs.agents.session import Session

HELLO = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "hi"}]}).encode()


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(endpoint, "REFUSAL_SECONDS", 0.01)


@contextmanager
def endpoint_of(session: Session):
    """An endpoint that is shut down at the end: closed alone, its thread would never rest."""
    opened = Endpoint()
    opened.open(session)
    opened.session = session
    yield opened
    opened.server.shutdown()
    opened.server.server_close()


@pytest.fixture(scope="module")
def served():
    """An endpoint of its own, whose session answers each call at once."""
    session = Session()

    def answer():
        while True:
            session.events.get().give({"hello": "you"})

    threading.Thread(target=answer, daemon=True).start()
    with endpoint_of(session) as opened:
        yield opened


def head(served, method="POST", path="/v1/chat/completions", **headers) -> bytes:
    """The head of a request. headers: override those of a good request; None leaves one out"""
    given = {
        "Host": "localhost",
        "Authorization": f"Bearer {served.session.secret}",
        "Content-Type": "application/json",
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in given.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


def connect(served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.server.server_port), timeout=10)


def answers(served, data: bytes, end: bool = True) -> tuple[list[int], bool]:
    """Send bytes; return the statuses of all answers, and whether the server closed then."""
    with connect(served) as connection:
        connection.sendall(data)
        if end:
            connection.shutdown(socket.SHUT_WR)
        got = b""
        while piece := connection.recv(2**16):
            got += piece
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", got)], got


def good(served) -> tuple[int, str]:
    return post(served.base_url, served.session.secret, HELLO)


def test_good_requests_share_a_connection(served):
    request = head(served, Content_Length=len(HELLO)) + HELLO
    assert answers(served, request + request)[0] == [200, 200]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1234", "[::1]:80"])
def test_hosts_of_this_machine(host, served):
    assert answers(served, head(served, "GET", "/v1/models", Host=host))[0] == [200]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},  # DNS rebinding: the page's own name, which leads here
        {"Host": "localhost.evil.example"},
        {"Host": "127.0.0.1@evil.example"},
        {"Host": ""},
        {"Host": None},
        {"Host": "localhost\r\nHost: evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_web_page_is_refused(method, headers, served):
    path = "/v1/models" if method == "GET" else "/v1/chat/completions"
    request = head(served, method, path, Content_Length=len(HELLO), **headers) + HELLO
    assert answers(served, request)[0] == [403]


def test_what_browsers_ask_in_advance_is_not_allowed(served):
    request = head(served, "OPTIONS", Origin="http://evil.example")
    statuses, got = answers(served, request)
    assert statuses == [403] and b"Access-Control" not in got


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_form_of_a_web_page_is_no_request(kind, served):
    request = head(served, Content_Type=kind, Content_Length=len(HELLO)) + HELLO
    assert answers(served, request)[0] == [415]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 411),
        ({"Transfer_Encoding": "chunked"}, 411),
        ({"Transfer_Encoding": "chunked", "Content_Length": "2"}, 411),
        ({"Content_Length": "2\r\nContent-Length: 5"}, 411),
        ({"Content_Length": "many"}, 411),
        ({"Content_Length": "-1"}, 411),
        ({"Content_Length": "+2"}, 411),
        ({"Content_Length": "2_0"}, 411),
        ({"Content_Length": "9" * 5000}, 411),
        ({"Content_Length": str(local_server.MAX_BODY + 1)}, 413),
        ({"Content_Length": "9" * 18}, 413),
    ],
)
def test_a_length_that_is_unclear_or_too_large(headers, status, served):
    assert answers(served, head(served, **headers) + b"{}")[0] == [status]


def test_the_key_is_checked_before_the_body_is_read(served):
    # the body never comes, and the answer comes all the same
    with connect(served) as connection:
        connection.sendall(head(served, Authorization="Bearer no", Content_Length=10**6))
        assert connection.recv(2**16).startswith(b"HTTP/1.1 401")


def test_a_refused_client_that_is_still_sending_gets_its_answer(served):
    body = b"x" * 8 * 2**20  # more than the buffers of the sockets hold
    request = head(served, Authorization="Bearer no", Content_Length=len(body)) + body
    assert answers(served, request)[0] == [401]


@pytest.mark.parametrize("first", ["GET", "PUT", "POST"])
def test_a_body_is_never_taken_as_a_request(first, served):
    second = head(served, "GET", "/v1/models")
    request = head(served, first, "/nothing", Content_Length=len(second)) + second
    assert answers(served, request, end=False)[0] == [501 if first == "PUT" else 404]


def test_a_body_that_breaks_off_is_not_answered(served):
    assert answers(served, head(served, Content_Length=len(HELLO) + 1) + HELLO)[0] == []


@pytest.mark.parametrize("sent", ["nothing", "head", "body"])
def test_slow_connections_are_dropped(sent, served, monkeypatch):
    monkeypatch.setattr(local_server, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(local_server, "REQUEST_SECONDS", 0.1)
    start = {
        "nothing": b"",
        "head": head(served)[:-2],
        "body": head(served, Content_Length=1000) + b"{",
    }
    with connect(served) as connection:
        connection.sendall(start[sent])
        assert connection.recv(2**16) == b""  # within 10 s, the time limit of the test's socket
    assert good(served)[0] == 200


def test_a_client_that_waits_for_its_answer_is_not_slow(monkeypatch):
    monkeypatch.setattr(local_server, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(local_server, "REQUEST_SECONDS", 0.1)
    session, got = Session(), []
    with endpoint_of(session) as opened:
        url, key = opened.base_url, session.secret
        job = threading.Thread(target=lambda: got.append(post(url, key, HELLO)))
        job.start()
        call = session.events.get(timeout=10)
        threading.Event().wait(1.2)  # the server looks twice a second
        call.give({"hello": "you"})
        job.join(10)
    assert [status for status, _ in got] == [200]


def test_too_many_connections_make_room_for_new_ones(served, monkeypatch):
    monkeypatch.setattr(local_server, "MAX_CONNECTIONS", 8)
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(served)) for _ in range(30)]
        for connection in slow:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nX")
        assert good(served)[0] == 200
        assert len(served.server.deadlines) <= 8
        assert slow[0].recv(1) == b""  # the oldest has gone


def test_a_full_server_that_answers_everyone_refuses_the_next(monkeypatch):
    monkeypatch.setattr(local_server, "MAX_CONNECTIONS", 1)
    session = Session()
    with endpoint_of(session) as opened, connect(opened) as first:
        first.sendall(head(opened, Content_Length=len(HELLO)) + HELLO)
        call = session.events.get(timeout=10)
        with connect(opened) as second:
            assert second.recv(1) == b""
        call.give({"hello": "you"})
        assert first.recv(2**16).startswith(b"HTTP/1.1 200")


def test_without_descriptors_the_server_waits(served, monkeypatch):
    accept, attempts = socket.socket.accept, []

    def fails(listening):
        attempts.append(time.thread_time())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with connect(served) as waiting:
        while not served.server.deadlines:
            time.sleep(0.01)
        monkeypatch.setattr(socket.socket, "accept", fails)
        with connect(served) as later:
            assert waiting.recv(1) == b""  # one that waits is dropped, for its descriptor
            threading.Event().wait(0.5)
            assert len(attempts) < 20  # one in 0.1 s, where thousands would fail
            monkeypatch.setattr(socket.socket, "accept", accept)
            later.sendall(head(served, "GET", "/v1/models"))
            assert later.recv(2**16).startswith(b"HTTP/1.1 200")
