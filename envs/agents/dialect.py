"""The APIs that programs may speak to the endpoint: how each reads a request and writes an answer.

The session and its environment know none of them: they pass `Request`s on, and give responses. A
new API is a module like `messages`, and a line in DIALECTS. The modules read dicts by hand: the
classes of the SDKs belong to optional packages, and take a second or more to import in each worker.
The tests let the SDKs read what the modules write.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from envs.agents import completions, messages, responses, responses_answer
from envs.agents.requests import Request, request_of


@dataclass(frozen=True)
class Dialect:
    """One API.

    parse(body, sampling, conversations): returns the Request; raises Refused, or another error if
        it is malformed. conversations: what the session keeps for it, see `responses.parse`
    answer(request, response, message, turn, tokens): returns the answer; see `completion`
    events(request, answer): yields the server-sent events of a stream
    joined(answers): returns one answer with the choices of all, for requests with n > 1; None: the
        API has no such requests
    """

    parse: Callable[[dict, str, dict], Request]
    answer: Callable[..., dict]
    events: Callable[[Request, dict], Iterator[bytes]]
    joined: Callable[[list[dict]], dict] | None = None


def parse_chat(body: dict, sampling: str, conversations: dict) -> Request:
    """Return the Request of a chat completion, which has the whole conversation."""
    return request_of(body, sampling)


CHAT_COMPLETIONS = Dialect(
    parse=parse_chat,
    answer=completions.completion,
    joined=completions.with_all_choices,
    events=completions.events,
)
RESPONSES = Dialect(responses.parse, responses_answer.answer, responses_answer.events)
MESSAGES = Dialect(messages.parse, messages.answer, messages.events)
DIALECTS = {  # by the path of the POST
    "/v1/chat/completions": CHAT_COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}
COUNTS = {  # requests that only count the tokens of a prompt, and make no turn
    "/v1/responses/input_tokens": RESPONSES,
    "/v1/messages/count_tokens": MESSAGES,
}
RESPONSE_ID = re.compile(r"(?:turn-|resp_|msg_)([0-9]{1,9})")  # as the answers have it


def number_of(response_id: str) -> int:
    """Return the number of the turn whose response has this id in any of the APIs; 0: none has"""
    match = RESPONSE_ID.fullmatch(response_id) if isinstance(response_id, str) else None
    return int(match[1]) if match else 0
