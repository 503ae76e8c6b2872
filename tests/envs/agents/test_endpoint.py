"""The endpoint as a client sees it: answers, streams, errors, and what keeps a slow one alive."""

import http.client
import json
import threading
import urllib.request
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from agent_programs import post

from envs.agents import endpoint
from envs.agents import session as sessions
from envs.agents.completions import completion, parse_response
from envs.agents.endpoint import endpoint as server
from envs.agents.errors import Refused
from envs.agents.session import Session

HELLO = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(endpoint, "REFUSAL_SECONDS", 0.01)


@pytest.fixture
def session():
    opened = Session()
    server().open(opened)
    yield opened
    server().close(opened)


@pytest.fixture
def asking(session):
    """asking(body, **headers) begins a request; the function that it returns waits for the end."""

    def asking(body, **headers):
        got, key = [], headers.pop("api_key", session.secret)

        def job():
            got.append(post(server().base_url, key, body, **headers))

        thread = threading.Thread(target=job)
        thread.start()

        def end():
            thread.join(20)
            return got[0]

        return end

    return asking


@pytest.mark.parametrize("known", ["", "example.org"])
def test_the_endpoint_is_not_behind_a_proxy(known, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, known)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    endpoint.reach_directly()
    assert urllib.request.proxy_bypass("127.0.0.1:8000")
    assert bool(urllib.request.proxy_bypass("example.org")) == bool(known)
    assert not urllib.request.proxy_bypass("example.com")


@pytest.mark.parametrize("running", [True, False])
def test_a_stranger_is_a_thread_that_runs(running, session, monkeypatch):
    """A program may end while requests of it wait; then a new thread may have its number."""
    monkeypatch.setattr(endpoint, "thread_of", lambda port: 42)
    other = Session()
    other.thread = SimpleNamespace(ident=42, is_alive=lambda: running)
    server().open(other)
    with pytest.raises(Refused, match="API key of another") if running else nullcontext():
        server().check_origin(1, session)
    assert other.events.empty() is not running
    server().close(other)


def give(call, response: str, turn: int = 1) -> None:
    request = call.request
    call.give(completion(request, response, parse_response(request, response), turn, tokens=5))


def next_call(session):
    return session.events.get(timeout=10)


def test_a_completion(session, asking):
    end = asking(HELLO)
    give(next_call(session), "Hi.")
    status, text = end()
    answer = json.loads(text)
    assert status == 200 and answer["object"] == "chat.completion"
    [choice] = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hi."}
    assert choice["finish_reason"] == "stop"
    usage = {"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 5}
    assert answer["usage"] == usage and answer["model"] == "policy"


def pieces_of(text: str) -> list[dict]:
    """The objects of a stream, which has an end."""
    lines = [line for line in text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_streamed_completion(session, asking):
    end = asking(HELLO | {"stream": True, "stream_options": {"include_usage": True}})
    give(next_call(session), "Hi.")
    message, ended, used = pieces_of(end()[1])
    assert message["choices"][0]["delta"] == {"role": "assistant", "content": "Hi."}
    assert ended["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert used["choices"] == [] and used["usage"]["total_tokens"] == 5


@pytest.mark.parametrize("stream", [False, True])
def test_blanks_keep_a_slow_connection_open(stream, session, asking, monkeypatch):
    monkeypatch.setattr(endpoint, "KEEP_ALIVE_SECONDS", 0.02)
    # the client waits 1 s for each byte, and 0.3 s for the whole would be too little
    end = asking(HELLO | {"stream": stream}, timeout=1)
    call = next_call(session)
    threading.Event().wait(0.3)
    give(call, "At last.")
    status, text = end()
    assert status == 200
    if stream:
        assert text.startswith(": wait\n\n: wait\n\n")
        assert pieces_of(text)[0]["choices"][0]["delta"]["content"] == "At last."
    else:
        assert text.startswith("   ")
        assert json.loads(text)["choices"][0]["message"]["content"] == "At last."


def test_closing_a_session_breaks_off_its_slow_answer(session, asking, monkeypatch):
    monkeypatch.setattr(endpoint, "KEEP_ALIVE_SECONDS", 0.02)

    def asks():
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            post(server().base_url, session.secret, HELLO)
        broken.append(True)

    broken = []
    thread = threading.Thread(target=asks)
    thread.start()
    next_call(session)
    threading.Event().wait(0.2)
    server().close(session)
    thread.join(20)
    assert broken


def test_waiting_and_later_requests_of_a_closed_session_get_401(session, asking):
    ends = [asking(HELLO), asking(HELLO)]  # equal requests are two calls
    for _ in range(2):
        next_call(session)
    server().close(session)
    for end in (*ends, asking(HELLO), asking(HELLO, api_key="another")):
        status, text = end()
        assert status == 401
        assert json.loads(text)["error"]["code"] == "invalid_api_key"


def test_the_end_of_a_slow_stream_is_an_error_event(session, asking, monkeypatch):
    monkeypatch.setattr(endpoint, "KEEP_ALIVE_SECONDS", 0.02)
    end = asking(HELLO | {"stream": True})
    next_call(session)
    threading.Event().wait(0.1)
    server().close(session)
    status, text = end()
    data = text.split("event: error\ndata: ")[1]
    assert status == 200 and json.loads(data)["error"]["message"] == "this episode is over"


def test_sdks_are_told_not_to_retry(session):
    for path, key in (("/chat/completions", "wrong"), ("/nothing", session.secret)):
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(server().base_url + path, b"{}", headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.headers["x-should-retry"] == "false"


def test_a_retry_joins_the_waiting_request(session, asking):
    ends = [asking(HELLO)]
    call = next_call(session)
    ends += [asking(HELLO, x_stainless_retry_count="1")]
    ends += [asking(HELLO, x_stainless_retry_count="0")]  # a program repeats itself on purpose
    second = next_call(session)
    give(second, "two")
    give(call, "one")
    message = [json.loads(end()[1])["choices"][0]["message"]["content"] for end in ends]
    assert message[0] == "one" and message[2] == "two"
    assert session.events.empty()


def test_retries_of_equal_requests_join_different_calls(session):
    body = json.dumps(HELLO).encode()
    first, second = session.call(body, 0), session.call(body, 0)
    # Both clients time out twice; a third retry of one of them finds its own call again.
    once = [session.call(body, 1), session.call(body, 1)]
    twice = [session.call(body, 2), session.call(body, 2)]
    assert once[0] is not once[1] and twice[0] is not twice[1]
    assert session.call(body, 3) in (first, second)
    third = session.call(body, 0)
    assert session.call(body, 1) is third  # the others have been repeated already
    assert session.calls == [first, second, third]


def test_a_retry_without_a_waiting_request_is_a_new_request(session, asking):
    end = asking(HELLO, x_stainless_retry_count="2")
    give(next_call(session), "Hi.")
    assert end()[0] == 200


def test_old_answers_are_forgotten(session):
    for k in range(50):
        session.call(json.dumps(HELLO | {"user": str(k)}).encode(), retries=0)
        if k != 3:
            give(session.calls[-1], "yes")
    # what waits stays, and so do the last ones
    assert len(session.calls) == sessions.CALLS_KEPT + 2
    assert not session.calls[0].done.is_set()


def test_models():
    with urllib.request.urlopen(f"{server().base_url}/models?limit=5") as answer:
        assert [model["id"] for model in json.load(answer)["data"]] == ["policy"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "cannot be read"),
        (b"[]", 400, "cannot be read"),
        (HELLO | {"model": "gpt"}, 404, "'gpt' is not served here: 'policy' is, and --upstream"),
        (HELLO | {"messages": []}, 400, "must be a list that is not empty"),
        (HELLO | {"messages": [{"content": "?"}]}, 400, "each message needs a role"),
        (HELLO | {"messages": ["?"]}, 400, "each message needs a role"),
        (HELLO | {"tools": [{"type": "function"}]}, 400, "cannot be read"),
        (HELLO | {"tools": [{"function": {"name": 3}}]}, 400, "each tool needs a name"),
        (HELLO | {"stream_options": 3}, 400, "cannot be read"),
        (b"[" * 100_000, 400, "cannot be read"),
    ],
)
def test_unreadable_requests_get_an_error(body, status, message, asking):
    code, text = asking(body)()
    assert code == status and message in json.loads(text)["error"]["message"]


def test_an_unreadable_number_of_retries_gets_an_error(asking):
    code, text = asking(HELLO, x_stainless_retry_count="x")()
    assert code == 400 and "cannot be read" in json.loads(text)["error"]["message"]


def test_a_query_string_is_ignored(session):
    url = f"{server().base_url}/chat/completions?api-version=1"
    headers = {"Authorization": f"Bearer {session.secret}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, b"[]", headers)
    with pytest.raises(urllib.error.HTTPError, match="400"):  # it was found, and cannot be read
        urllib.request.urlopen(request)


def test_unknown_paths_get_404(session):
    for path in ("/v1/completions", "/"):
        request = urllib.request.Request(server().base_url.removesuffix("/v1") + path, b"{}")
        request.add_header("Authorization", f"Bearer {session.secret}")
        session.refused = False
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(request)
        assert session.refused  # the program's end is not the policy's fault
    request = urllib.request.Request(f"{server().base_url}/files")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(request)
    session.refused = False
    request.add_header("x-api-key", session.secret)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(request)
    assert session.refused


class Upstream(BaseHTTPRequestHandler):
    """Answers with what it was asked; the model "bad" has an error."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Authorization"]
        answer = json.dumps({"asked": body, "path": self.path, "key": key}).encode()
        self.send_response(429 if body["model"] == "bad" else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


@pytest.fixture
def upstream(session):
    other = HTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    session.upstream = f"http://127.0.0.1:{other.server_port}/v1/"
    yield other
    other.shutdown()
    other.server_close()


def test_requests_for_other_models_go_upstream_and_make_no_turn(
    upstream, session, asking, monkeypatch
):
    monkeypatch.setenv("UPSTREAM_API_KEY", "secret")
    body = HELLO | {"model": "judge", "temperature": 0}  # which the policy would refuse
    status, text = asking(body)()
    asked = {"asked": body, "path": "/v1/chat/completions", "key": "Bearer secret"}
    assert status == 200 and json.loads(text) == asked
    assert asking(HELLO | {"model": "bad"})()[0] == 429
    assert session.events.empty()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "127.0.0.1:9/v1"])
def test_an_unreachable_upstream(session, asking, url):
    session.upstream = url
    status, text = asking(HELLO | {"model": "judge"})()
    assert status == 502 and f"--upstream {url}: " in text


def test_several_completions_of_one_request():
    opened = Session(sampling="untrained")
    server().open(opened)
    got = []
    body = HELLO | {"n": 2}

    def job():
        got.append(post(server().base_url, opened.secret, body))

    thread = threading.Thread(target=job)
    thread.start()
    call, again = next_call(opened), next_call(opened)
    assert call is again and opened.events.empty()
    give(call, "one")
    assert not call.done.is_set()
    give(call, "two", turn=2)
    thread.join(20)
    answer = json.loads(got[0][1])
    message = [(choice["index"], choice["message"]["content"]) for choice in answer["choices"]]
    assert message == [(0, "one"), (1, "two")] and answer["usage"]["completion_tokens"] == 10
    server().close(opened)
