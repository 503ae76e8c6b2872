"""An environment in which the agent talks with a user, who answers, rewards and ends the dialogue.

A turn is one message of the agent with the user's answer to it. The user is a method in Python, or
any chat client: `ChatUser` asks another model behind an OpenAI-compatible endpoint. The page
docs/dialogues.md has an example of each.
"""

import http.client
import json
import re
import string
import urllib.error
import urllib.request

import gymnasium
from gymnasium.spaces import Text

from common.chat import THINK, after_thought
from envs import contract

MISSING = "is missing: a dialogue must define it"


class Dialogue(gymnasium.Env):
    """Base class. A subclass defines `open` and `user`, and may set the attributes.

    system: the agent's system message
    max_turns: messages of the agent after which a dialogue is cut, unless --max-episode-steps says
        otherwise
    pardon: what the user says to a response that he cannot hear, because it is empty or a thought
        that is not closed; it costs `format_penalty`
    replayable: whether equal seeds and equal responses bring equal answers; where they do not, a
        resumed run leaves the dialogue that it was in and begins the next one
    """

    tasks = ()
    speaks_messages = True  # a response is taken as it is: nobody looks for an ACTION in it
    system = "You talk with a user."
    max_turns = 16
    replayable = True
    pardon = "I did not hear you. Please say it again."
    observation_space = Text(max_length=65536, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)

    def __init__(self, max_episode_steps: int | None = None, format_penalty: float = 0.1):
        self.max_turns = max_episode_steps or self.max_turns
        self.format_penalty = format_penalty

    def open(self, seed: int | None) -> str:
        """Begin a dialogue; return the user's first words. `self.np_random` is seeded already."""
        raise contract.breach(self, "open", MISSING)

    def user(self, history: list[dict]) -> tuple[str, float, bool]:
        """Answer the agent; return (text, reward, whether the dialogue is over).

        history: chat messages of the roles user and assistant in turn, from the user's first words
            to what the agent has just said. They hold what was heard, and so no thoughts.
        """
        raise contract.breach(self, "user", MISSING)

    def success(self, reward: float) -> bool:
        """Judge a dialogue that the user has ended, by the reward of its last turn."""
        return reward > 0

    def episode_metrics(self) -> dict[str, float]:
        """Return figures of the dialogue that just ended, logged as `rollout/<name>`."""
        return {}

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed, options=options)
        self.turns = 0
        text = self.open(seed)
        contract.check_observation(self, "open", text)
        self.history = [{"role": "user", "content": text}]
        return text, self._info(text)

    def step(self, response: str):
        response = str(response)  # the pool's is a subclass of str, and messages hold plain texts
        self.turns += 1
        said, at = spoken(response)
        if said:
            text, reward, over = self._answer(said)
        else:
            text, reward, over = self.pardon, -self.format_penalty, False
        truncated = self.turns >= self.max_turns and not over
        info = self._info(text) | dict(
            reply={"role": "assistant", "content": response},
            said=response, action=said, action_at=at, valid=bool(said),
            success=bool(over and self.success(reward)),
        )  # fmt: skip
        if over or truncated:
            info["metrics"] = self.episode_metrics()
        return text, float(reward), over, truncated, info

    def _answer(self, said: str) -> tuple[str, float, bool]:
        """Let the user answer. BrokenContract: what he returned is not what it must be."""
        self.history.append({"role": "assistant", "content": said})
        answer = self.user([dict(message) for message in self.history])
        contract.check_count(self, "user", answer, "(text, reward, over)")
        text, reward, over = answer
        contract.check_observation(self, "user", text)
        contract.check_reward(self, "user", reward)
        contract.check_truth(self, "user", "over =", over)
        self.history.append({"role": "user", "content": text})
        return text, reward, over

    def _info(self, text: str) -> dict:
        messages = [{"role": "user", "content": text}]
        return dict(
            system=self.system, instruction="", kept=text, messages=messages,
            replayable=self.replayable,
        )  # fmt: skip


def spoken(response: str) -> tuple[str, int]:
    """Return what follows the last </think>, and where it begins; ("", the response's length) if
    that is nothing or a thought that is not closed."""
    begin = after_thought(response)
    said = response[begin:].strip()
    if not said or THINK in said:
        return "", len(response)
    return said, response.index(said, begin)


# How a user that is a language model ends a dialogue and rewards it.
DONE = re.compile(r"^[\s*_]*DONE:[\s*_]*(-?\.?\d\S*)", re.MULTILINE)
MARK = re.compile(r"(-?(?:\d+\.?\d*|\.\d+))(?![\d/%_]|[-.,]\d|[eE][-+]?\d)")  # not "8/10", "1,5"
RULES = """

You are the user, and the other one is the assistant: never speak for the assistant. When the \
dialogue is over, end your message with a line of this form, where the number says how well the \
assistant did, from 0 (it did not help) to 1 (it did all that you wanted):
DONE: 0.5"""
GREETING = "Hello! How can I help you?"  # many chat templates want a first message that is asked


class ChatUser:
    """A user that another model plays, behind POST {base_url}/chat/completions.

    base_url: as OpenAI's clients take it, for example "http://127.0.0.1:8000/v1"
    instructions: who the user is and what he wants; RULES follow, which say how a dialogue ends
    api_key: sent as a bearer token, if there is one
    timeout: seconds for an answer
    options: more fields of the request, such as temperature, max_tokens or seed

    It raises ConnectionError if no answer comes, or one that cannot be read, such as one with a
    number that is not from 0 to 1.
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
        """Return the user's first words."""
        return self([])[0]

    def __call__(self, history: list[dict]) -> tuple[str, float, bool]:
        """Return (text, reward, over), as `Dialogue.user` does; the reward is 0 before the end."""
        text = spoken(self._ask(history))[0]
        done = DONE.search(text)
        if done is None:
            return text or "...", 0.0, False
        number = MARK.match(done[1].rstrip("*_"))
        mark = float(number[1]) if number else -1.0
        if not 0 <= mark <= 1:  # it would pay more than any other dialogue
            said = f"{done[0].strip()!r:.80}, whose number must be from 0 to 1"
            raise ConnectionError(f"{self.url} ended the dialogue with {said}")
        return text[: done.start()].strip() or "Goodbye.", mark, True

    def _ask(self, history: list[dict]) -> str:
        swapped = {"user": "assistant", "assistant": "user"}  # to the model, the agent is the user
        messages = [
            {"role": "system", "content": self.instructions + RULES},
            {"role": "user", "content": GREETING},
            *({"role": swapped[said["role"]], "content": said["content"]} for said in history),
        ]
        body = json.dumps(self.options | {"model": self.model, "messages": messages}).encode()
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(self.url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                said = json.load(answer)["choices"][0]["message"]["content"]
            return "" if said is None else str(said)
        except urllib.error.HTTPError as error:
            said = error.read(300).decode("utf-8", "replace")
            raise ConnectionError(f"{self.url} answered {error.code}: {said}") from error
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            raise ConnectionError(f"{self.url} gave no answer: {error!r}") from error
