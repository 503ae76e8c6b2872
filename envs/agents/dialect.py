"""The APIs that programs may speak to the endpoint: how each reads a request and writes an answer.

The session and its environment know none of them: they pass `Request`s on, and give responses. A
new API is a module like `completions`, and a line in DIALECTS.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from envs.agents import completions
from envs.agents.requests import Request, request_of


@dataclass(frozen=True)
class Dialect:
    """One API.

    parse(body, sampling): returns the Request; raises Refused, or another error if it is malformed
    answer(request, response, message, turn, tokens): returns the answer; see `completion`
    joined(answers): returns one answer with the choices of all, for requests with n > 1
    events(request, answer): yields the server-sent events of a stream
    """

    parse: Callable[[dict, str], Request]
    answer: Callable[..., dict]
    joined: Callable[[list[dict]], dict]
    events: Callable[[Request, dict], Iterator[bytes]]


CHAT_COMPLETIONS = Dialect(
    parse=request_of,
    answer=completions.completion,
    joined=completions.with_all_choices,
    events=completions.events,
)
DIALECTS = {"/v1/chat/completions": CHAT_COMPLETIONS}  # by the path of the POST
