"""The session of an episode: its requests in the order of arrival, and the answers to them.

A session knows nothing of HTTP (`envs.agents.endpoint`) and nothing of the form of requests and
answers (`envs.agents.dialect`).
"""

import hashlib
import json
import queue
import secrets
import threading
from typing import NamedTuple

from envs.agents.dialect import CHAT_COMPLETIONS, Dialect, number_of
from envs.agents.errors import OVER, Refused
from envs.agents.requests import Request
from envs.agents.tokens import TokenCounter
from envs.contract import is_finite
from envs.errors import BrokenContract

CALLS_KEPT = 16  # answered calls of a session that a retry can still get
ENDED = (OVER, 401, "invalid_api_key")


class Payment(NamedTuple):
    """A reward that the program has paid. number: of the turn; None: the current one"""

    amount: float
    number: int | None


class Call:
    """A request that waits for its answer."""

    def __init__(self, key: str, request: Request, dialect: Dialect = CHAT_COMPLETIONS):
        self.key, self.request, self.dialect = key, request, dialect
        self.n = request.sampling.extra.get("n", 1)  # number of answers that make the whole
        self.retries = 0  # how often the client has asked again
        self.answers, self.answer, self.done = [], None, threading.Event()

    def respond(self, response: str, message, turn: int, tokens: int) -> None:
        """Give a response of the policy; see `envs.agents.completions.completion`."""
        self.give(self.dialect.answer(self.request, response, message, turn, tokens))

    def give(self, answer: dict | Refused) -> None:
        """Add an answer, or refuse the request. It is done with n answers or a refusal."""
        self.answers.append(answer)
        refused = isinstance(answer, Refused)
        if refused or len(self.answers) == self.n:
            whole = answer if refused or self.n == 1 else self.dialect.joined(self.answers)
            self.answer = whole
            self.done.set()


def retried(same: list[Call], retries: int) -> Call:
    """Return the call that a retry repeats. Of equal ones each has its own client, so it is one
    that was repeated less often, and of these the one repeated most, or else the newest."""
    call = max(reversed(same), key=lambda call: (call.retries < retries, call.retries))
    call.retries = retries
    return call


class Session:
    """The calls of one episode. The queue `events` has them in order, and then the program's end.

    tokens: counts the tokens of prompts, and refuses those that cannot be answered; None: none are
    sampling, upstream: see `envs.agents.agent.AgentEnv`
    """

    def __init__(
        self, tokens: TokenCounter | None = None, sampling: str = "refuse", upstream: str = ""
    ):
        self.tokens = tokens or TokenCounter("", {}, 0)
        self.sampling, self.upstream = sampling, upstream
        self.secret, self.events, self.closed = secrets.token_urlsafe(16), queue.Queue(), False
        self.name = ""  # of the program, for messages
        self.thread: threading.Thread | None = None  # in which it runs
        self.refused = False  # whether the last request got an error that no response causes
        self.turns = 0  # responses that the policy has given
        self.payments: list[Payment] = []  # the program's threads append to it
        self.conversations: dict[str, list[dict]] = {}  # see `envs.agents.responses.parse`
        self.calls: list[Call] = []  # waiting ones, and the last answered ones for retries
        self.lock = threading.Lock()

    def call(self, body: bytes, retries: int, dialect: Dialect = CHAT_COMPLETIONS) -> Call:
        """Return the Call of a request: a new one, or the earlier one that a retry repeats.

        retries: how often the client has asked again; 0: an equal request is a new call
        Refused, ValueError, ...: it cannot be answered
        """
        key = hashlib.sha256(body).hexdigest()
        with self.lock:
            if self.closed:
                raise Refused(*ENDED)
            same = [call for call in self.calls if (call.key, call.dialect) == (key, dialect)]
            if retries > 0 and same:
                return retried(same, retries)
            request = dialect.parse(json.loads(body), self.sampling, self.conversations)
            request.tokens = self.tokens.check(request)
            call = Call(key, request, dialect)
            waiting = [old for old in self.calls[:-CALLS_KEPT] if not old.done.is_set()]
            self.calls = [*waiting, *self.calls[-CALLS_KEPT:], call]
            for _ in range(call.n):
                self.events.put(call)
            return call

    def count(self, body: bytes, dialect: Dialect) -> int:
        """Return the tokens of a request's prompt. Refused, ...: it cannot be written"""
        request = dialect.parse(json.loads(body), self.sampling, self.conversations)
        return self.tokens.written(request)

    def pay(self, amount: float, turn: str | None = None) -> None:
        """Keep a reward; programs get this method as `reward`.

        turn: the id of the response that earned it; default: the last response
        BrokenContract: it is not a finite number, or no response of the episode has this id
        """
        if not is_finite(amount):
            raise BrokenContract(f"{self.name} paid {amount!r:.80}; it must be a finite number")
        number = None if turn is None else number_of(turn)
        if number is not None and not 1 <= number <= self.turns:
            known = "the `id` of a completion, response or message that this episode has had"
            raise BrokenContract(f"{self.name} paid the turn {turn!r:.80}; it must be {known}")
        self.payments.append(Payment(float(amount), number))

    def take_payments(self) -> list[Payment]:
        """Return the payments since the last call of this method."""
        return [self.payments.pop(0) for _ in range(len(self.payments))]

    def fail(self, error: Exception) -> None:
        """End the episode with an error that its program has not noticed."""
        self.events.put((error,))

    def close(self) -> None:
        """Refuse the waiting calls and all later ones."""
        with self.lock:
            self.closed = True
            for call in self.calls:
                if not call.done.is_set():
                    call.give(Refused(*ENDED))
