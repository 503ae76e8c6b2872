"""A user that another model plays, behind an OpenAI-compatible endpoint.

The model ends a dialogue and rewards it with a last line such as "DONE: 0.5".
"""

import http.client
import json
import re
import urllib.error
import urllib.request

from envs.dialogue.dialogue_env import without_thought

DONE = re.compile(r"^[\s*_]*DONE:[\s*_]*(-?\.?\d\S*)", re.MULTILINE)
SCORE = re.compile(r"(-?(?:\d+\.?\d*|\.\d+))(?![\d/%_]|[-.,]\d|[eE][-+]?\d)")  # not "8/10", "1,5"
RULES = """

You are the user, and the other one is the assistant: never speak for the assistant. When the \
dialogue is over, end your message with a line of this form, where the number says how well the \
assistant did, from 0 (it did not help) to 1 (it did all that you wanted):
DONE: 0.5"""
GREETING = "Hello! How can I help you?"  # many chat templates want a user's message first


class ChatUser:
    """A user that another model plays, behind POST {base_url}/chat/completions.

    base_url: the base URL of OpenAI's clients, for example "http://127.0.0.1:8000/v1"
    instructions: who the user is and what he wants; RULES, which say how a dialogue ends, follow it
    api_key: sent as a bearer token if it is not empty
    timeout: seconds to wait for an answer
    options: more fields of the request, such as temperature, max_tokens or seed

    It raises ConnectionError if no answer comes, or one that is not valid: for instance, the number
    after DONE must be from 0 to 1.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        instructions: str,
        api_key: str = "",
        timeout: float = 60.0,
        **options,
    ):
        self.url = base_url.rstrip("/") + "/chat/completions"
        self.model, self.instructions = model, instructions
        self.api_key, self.timeout, self.options = api_key, timeout, options

    def open(self) -> str:
        """Return the user's first message."""
        return self([])[0]

    def __call__(self, history: list[dict]) -> tuple[str, float, bool]:
        """Return (text, reward, over), as `Dialogue.user` does; the reward is 0 before the end."""
        text, _ = without_thought(self._ask(history))
        done = DONE.search(text)
        if done is None:
            return text or "...", 0.0, False
        match = SCORE.match(done[1].rstrip("*_"))
        score = float(match[1]) if match else -1.0
        if not 0 <= score <= 1:  # a larger one would pay more than any other dialogue
            line = f"{done[0].strip()!r:.80}, whose number must be from 0 to 1"
            raise ConnectionError(f"{self.url} ended the dialogue with {line}")
        return text[: done.start()].strip() or "Goodbye.", score, True

    def _ask(self, history: list[dict]) -> str:
        swapped = {
            "user": "assistant",
            "assistant": "user",
        }  # to this model the agent is the user
        messages = [
            {"role": "system", "content": self.instructions + RULES},
            {"role": "user", "content": GREETING},
            *({"role": swapped[m["role"]], "content": m["content"]} for m in history),
        ]
        body = json.dumps(self.options | {"model": self.model, "messages": messages}).encode()
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(self.url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                text = json.load(answer)["choices"][0]["message"]["content"]
            return "" if text is None else str(text)
        except urllib.error.HTTPError as error:
            reason = error.read(300).decode("utf-8", "replace")
            raise ConnectionError(f"{self.url} answered {error.code}: {reason}") from error
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            raise ConnectionError(f"{self.url} gave no answer: {error!r}") from error
