"""Counts the tokens of an agent's requests and responses, for the prompt limit and for usage."""

import functools
import json
import threading

from envs.agents.errors import Refused


class TokenCounter:
    """Counts as the trainer encodes.

    tokenizer: a directory or hub name; "": all counts are 0
    template: arguments of the chat template; prompt_limit: most tokens of a prompt
    """

    def __init__(self, tokenizer: str, template: dict, prompt_limit: int):
        self.tokenizer, self.template, self.prompt_limit = tokenizer, template, prompt_limit

    def count(self, text: str | list[dict], template: dict | None = None) -> int:
        """Count the tokens of a text, or of a prompt of messages."""
        if not self.tokenizer:
            return 0
        return _counter(self.tokenizer, json.dumps(self.template))(text, template)

    def written(self, request) -> int:
        """Return the tokens of a request's prompt. Refused: it cannot be written"""
        try:
            return self.count(request.messages, request.template)
        except Exception as error:  # templates refuse with errors of many types
            message = f"the chat template cannot write these messages: {error}"
            raise Refused(message, code="invalid_request_error") from error

    def check(self, request) -> int:
        """Return the tokens of a request's prompt. Refused: it is too long, or cannot be written"""
        tokens = self.written(request)
        if self.tokenizer and not tokens:
            raise Refused("the chat template writes nothing", code="invalid_request_error")
        if tokens > self.prompt_limit:
            message = f"the messages have {tokens} tokens, --prompt-limit is {self.prompt_limit}"
            raise Refused(message, code="context_length_exceeded")
        return tokens


@functools.cache  # of a process: hundreds of agents share a tokenizer
def _counter(path: str, template: str):
    """Return a function that counts the tokens of a text, or of the prompt made from messages.

    template: the JSON of the arguments that the chat template gets in each prompt
    """
    from transformers import AutoTokenizer

    from memory.spelled import SafeRenderer

    tokenizer, defaults = AutoTokenizer.from_pretrained(path), json.loads(template)
    render, lock = SafeRenderer(tokenizer, prompt_limit=2**40), threading.Lock()

    def count(text: str | list[dict], given: dict | None = None) -> int:
        with lock:  # tokenizers are not thread-safe
            if isinstance(text, list):
                return len(render.encode(render.write(text, defaults | (given or {}))))
            return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    return count
