"""A dialogue: what the agent says reaches the user, and the user's words, rewards and end come
back; a user behind an endpoint is asked with the roles swapped."""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import gymnasium
import pytest

from envs.dialogue.chat_user import GREETING, RULES, ChatUser
from envs.dialogue.dialogue_env import Dialogue, without_thought
from envs.errors import BrokenContract
from envs.text_env import act, begin
from memory.window import WindowMemory


class Waiter(Dialogue):
    """A guest who orders by name and by number; he ends the dialogue at the word "tea"."""

    system = "You are a waiter."
    max_turns = 4

    def open(self, seed):
        self.table = int(self.np_random.integers(100))
        return f"I sit at table {self.table}."

    def user(self, history):
        self.seen = history
        if "tea" in history[-1]["content"]:
            return "Thank you.", 0.75, True
        if "wine" in history[-1]["content"]:
            return "No!", -0.5, True
        return "Something hot, please.", 0.125, False

    def episode_metrics(self):
        return {"messages": len(self.history) // 2}


def message(role, content):
    return {"role": role, "content": content}


def test_a_dialogue_from_the_first_message_to_the_end():
    env = Waiter()
    first = begin(env, seed=3)
    opening = message("user", f"I sit at table {env.table}.")
    assert first.replayable and first.messages == (opening,) and first.system == "You are a waiter."
    one = act(env, "What would you like?")
    assert (one.reward, one.terminated, one.truncated, one.success) == (0.125, False, False, False)
    assert one.observation.messages == (message("user", "Something hot, please."),)
    assert one.metrics == {}
    two = act(env, "<think>Tea is hot.</think>\nI bring tea.")
    assert (two.reward, two.terminated, two.truncated, two.success) == (0.75, True, False, True)
    assert two.metrics == {"messages": 2.0}


def test_the_user_gets_no_thoughts_but_memory_keeps_them():
    env = Waiter()
    memory = WindowMemory(8)
    memory.reset(begin(env, seed=3))
    response = "<think>He is cold.</think>\nSoup?"
    step = act(env, response)
    memory.update(step)
    opening = message("user", f"I sit at table {env.table}.")
    assert env.seen == [opening, message("assistant", "Soup?")]
    assert step.action == "Soup?" and response[step.action_at :] == "Soup?"
    assert memory.messages() == [
        message("system", "You are a waiter."),
        opening,
        message("assistant", response),
        message("user", "Something hot, please."),
    ]


def test_messages_hold_plain_texts():
    class Said(str):
        pass

    env = Waiter()
    begin(env, seed=3)
    assert type(act(env, Said("Soup?")).reply["content"]) is str
    assert {type(message["content"]) for message in env.history} == {str}


@pytest.mark.parametrize(
    ("response", "message", "begin"),
    [
        ("Tea?", "Tea?", 0),
        ("  Tea?\n", "Tea?", 2),
        ("<think>a</think> b </think>\nTea?", "Tea?", 28),
        ("hm</think>Tea?", "Tea?", 10),  # templates that open <think> themselves
        ("<think>Tea?", "", 11),  # a truncated thought
        ("<think>a</think>\n<think>Tea?", "", 28),
        ("<think>Tea?</think>\n", "", 20),
        (" ", "", 1),
        ("", "", 0),
    ],
)
def test_a_message_is_the_response_without_its_reasoning(response, message, begin):
    assert without_thought(response) == (message, begin)


@pytest.mark.parametrize("response", ["", "<think>tea"])
def test_a_response_without_a_message_costs_the_penalty(response):
    env = Waiter(format_penalty=0.25)
    begin(env, seed=3)
    step = act(env, response)
    assert (step.valid, step.reward, step.terminated) == (False, -0.25, False)
    assert step.observation.text == Waiter.pardon
    assert step.action_at == len(response)
    assert len(env.history) == 1  # the user does not get it
    assert act(env, "tea").success


def test_a_dialogue_that_is_too_long_is_truncated_and_not_a_success():
    for turns, env in ((4, Waiter()), (2, Waiter(max_episode_steps=2))):
        begin(env, seed=0)
        steps = [act(env, "Soup?") for _ in range(turns)]
        assert [step.truncated for step in steps] == [False] * (turns - 1) + [True]
        assert not (steps[-1].terminated or steps[-1].success)
        assert steps[-1].metrics == {"messages": turns}
    begin(env, seed=0)
    act(env, "Soup?")
    last = act(env, "tea")  # ending in the last turn is not a truncation
    assert last.terminated and not last.truncated


def test_success_is_a_rule_of_the_last_reward():
    class Patient(Waiter):
        def success(self, reward):
            return reward > -1

    for kind, succeeds in ((Waiter, False), (Patient, True)):
        env = kind()
        begin(env, seed=0)
        step = act(env, "wine")
        assert step.terminated and step.success is succeeds


def test_a_dialogue_begins_again_in_the_same_way():
    env = Waiter()
    first = begin(env, seed=7)
    act(env, "Soup?")
    assert begin(env, seed=7) == first
    assert len(env.history) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("Yes.", r"Rude.user returned 'Yes.'; it must return \(text, reward, over\)"),
        (("", 0.0, False), "Rude.user returned the observation ''; it must be a text that"),
        (("Yes.", "much", False), "Rude.user returned the reward 'much'; it must be a finite"),
        (("Yes.", 0.0, None), "Rude.user returned over = None; it must be True or False"),
    ],
)
def test_an_invalid_answer_of_the_user_is_reported_with_its_method(answer, words):
    class Rude(Dialogue):
        def open(self, seed):
            return "Hello."

        def user(self, history):
            return answer

    env = Rude()
    begin(env, seed=0)
    with pytest.raises(BrokenContract, match=words):
        act(env, "Hello.")


def test_a_missing_method_is_reported_with_its_class():
    class Mute(Dialogue):
        pass

    class Deaf(Mute):
        def open(self, seed):
            return "Hello."

    with pytest.raises(BrokenContract, match=r"Mute.open is missing: a dialogue must define it"):
        begin(Mute(), seed=0)
    env = Deaf()
    begin(env, seed=0)
    with pytest.raises(BrokenContract, match=r"Deaf.user is missing: a dialogue must define it"):
        act(env, "Hello.")


@contextmanager
def endpoint(*answers):
    """A chat server on this machine that gives these answers, of (status, body); yields its
    base_url and the requests that came, of (path, authorization, body)."""
    requests, left = [], list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.path, self.headers["Authorization"], body))
            status, answer = left.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def says(text):
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}}]}


class Hosted(Dialogue):
    def __init__(self, user, **given):
        super().__init__(**given)
        self.guest = user

    def open(self, seed):
        return self.guest.open()

    def user(self, history):
        return self.guest(history)


def test_another_model_is_the_user():
    answers = [
        says("I want tea."),
        says("<think>Rather polite.</think>Yes, green."),
        says("Thank you!\n**DONE:** 0.5"),
    ]
    with endpoint(*answers) as (base_url, requests):
        user = ChatUser(base_url + "/", "guest-7b", "You want tea.", api_key="k", temperature=0.5)
        env = Hosted(user)
        assert begin(env, seed=0).text == "I want tea."
        one = act(env, "<think>A secret.</think>Green tea?")
        assert (one.observation.text, one.reward, one.terminated) == ("Yes, green.", 0.0, False)
        two = act(env, "Here it is.")
        assert (two.observation.text, two.reward, two.terminated) == ("Thank you!", 0.5, True)
        assert two.success
    path, authorization, body = requests[2]
    assert (path, authorization) == ("/v1/chat/completions", "Bearer k")
    assert body == {
        "model": "guest-7b",
        "temperature": 0.5,
        "messages": [
            message("system", "You want tea." + RULES),
            message("user", GREETING),
            message("assistant", "I want tea."),
            message("user", "Green tea?"),
            message("assistant", "Yes, green."),
            message("user", "Here it is."),
        ],
    }
    assert requests[0][2]["messages"] == body["messages"][:2]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Thanks.\nDONE: 1", ("Thanks.", 1.0, True)),
        ("DONE: 0", ("Goodbye.", 0.0, True)),
        ("Fair.\n  DONE: .5.\nBye.", ("Fair.", 0.5, True)),
        ("Are we DONE: 1?", ("Are we DONE: 1?", 0.0, False)),  # not a line of its own
        ("DONE: soon", ("DONE: soon", 0.0, False)),
        ("DONE: 1)", ("Goodbye.", 1.0, True)),
        ("DONE: 0.8; the light is on", ("Goodbye.", 0.8, True)),
        ('"DONE: 0.9"\nDONE: 0.9"', ('"DONE: 0.9"', 0.9, True)),
        ("DONE: 0.5…", ("Goodbye.", 0.5, True)),
        ("", ("...", 0.0, False)),
        (None, ("...", 0.0, False)),  # a model that only thought, or called a tool
    ],
)
def test_the_end_marker_ends_a_dialogue(message, expected):
    with endpoint(says(message)) as (base_url, _):
        assert ChatUser(base_url, "m", "Be brief.")([]) == expected


@pytest.mark.parametrize(
    "score", ["8/10", "10", "100%", "-5", "0,7", "1.01", "1e9", "1/1", "0.5-0.8", "1_0"]
)
def test_a_score_out_of_range_is_an_error(score):
    with endpoint(says(f"Thanks.\n**DONE: {score}**")) as (base_url, _):
        with pytest.raises(ConnectionError, match=f"DONE: {score}.* must be from 0 to 1"):
            ChatUser(base_url, "m", "Be brief.")([])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, b"out of memory"), "answered 500: out of memory"),
        ((200, b"<html>"), "gave no answer: JSONDecodeError"),
        ((200, {"choices": []}), "gave no answer: IndexError"),
        ((200, {"choices": [None]}), "gave no answer: TypeError"),
    ],
)
def test_a_failing_endpoint_is_reported(answer, words):
    with endpoint(answer) as (base_url, _):
        with pytest.raises(ConnectionError, match=rf"{base_url}/chat/completions {words}"):
            ChatUser(base_url, "m", "Be brief.").open()


def test_an_endpoint_that_breaks_off_is_reported():
    with HTTPServer(("127.0.0.1", 0), Breaking) as server:
        threading.Thread(target=server.handle_request).start()
        user = ChatUser(f"http://127.0.0.1:{server.server_port}", "m", "Be brief.")
        with pytest.raises(ConnectionError, match="gave no answer: IncompleteRead"):
            user.open()


class Breaking(BaseHTTPRequestHandler):
    """Sends less than its Content-Length."""

    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"{")

    def log_message(self, *_):
        pass


def test_a_missing_or_slow_endpoint_is_reported():
    with endpoint() as (base_url, _):
        pass  # the server is closed now
    with pytest.raises(ConnectionError, match="gave no answer"):
        ChatUser(base_url, "m", "Be brief.").open()
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:  # it never reads
        user = ChatUser(f"http://127.0.0.1:{silent.server_port}", "m", "Be brief.", timeout=0.05)
        with pytest.raises(ConnectionError, match="gave no answer: TimeoutError"):
            user.open()


def test_the_page_about_dialogues_shows_code_that_works(monkeypatch):
    monkeypatch.setattr(gymnasium, "register", lambda *_: None)
    page = (Path(__file__).resolve().parents[3] / "docs" / "dialogues.md").read_text()
    python, chat = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(python, names)
    env = names["Hotel"]()
    begin(env, seed=0)
    assert act(env, "How many nights?").observation.text == f"I stay for {env.nights}."
    assert act(env, "How many beds?").observation.text == f"I want {env.beds} beds."
    step = act(env, f"So {env.nights} nights, {env.beds} beds.")
    assert step.success and step.reward == 1.0
    exec(chat, names)
    with endpoint(says("Hello?"), says("Thanks.\nDONE: 0.8")) as (base_url, _):
        env = names["HotelCall"]()
        env.guest.url = f"{base_url}/chat/completions"
        first = begin(env, seed=0)
        assert first.text == "Hello?" and not first.replayable
        assert act(env, "Welcome.").reward == 0.8
