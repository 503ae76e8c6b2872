"""Any agent program as an environment: its next chat completion is the observation.

Control is inverted. The program, written as for production, asks an OpenAI-compatible endpoint
(`envs.endpoint`) for completions. A request is an observation, the sampled response is the step,
and what the program returns is the final reward. So one completion is one turn, and the program
may edit its context as it likes: what it sends is the prompt.

    python main.py --env-name agent:my_agent:solve

    def solve(seed, base_url, api_key, reward):     # or async def
        client = OpenAI(base_url=base_url, api_key=api_key)
        ...client.chat.completions.create(model="policy", messages=..., tools=...)
        reward(0.1)                                  # pays at once
        return 1.0                                   # or dict(reward=, success=, metrics=)
"""

import asyncio
import ctypes
import functools
import inspect
import queue
import string
import threading
from numbers import Real

import gymnasium
from gymnasium.spaces import Text

from envs.completions import Refused, completion, heard
from envs.contract import BrokenContract, check_reward
from envs.endpoint import Call, Session, endpoint
from envs.tools import action
from storage.named import check_call, defined_at, find

ARGUMENTS = "seed base_url api_key reward".split()
OVER = "The program has ended."
LEAVE = 5.0  # seconds that a program has to end after its session was closed


class AgentEnv(gymnasium.Env):
    """An environment around `function(seed, base_url, api_key, reward)`.

    name: "module:function"; timeout: seconds in which the program must ask again or end
    tokenizer: a directory or hub name; with it, prompts above `prompt_limit` tokens get an error
        and usage has numbers; template: arguments of the chat template, as --template-kwargs
    sampling: "refuse" what is not the policy's distribution, or "run": serve it with the run's own
    upstream: base URL of another endpoint, which answers requests for other models
    """

    family = "agent"
    tasks = ()
    speaks_messages = True
    observation_space = Text(max_length=2**24, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)

    def __init__(
        self, name: str, format_penalty: float = 0.1, max_episode_steps: int | None = None,
        timeout: float = 300.0, tokenizer: str = "", template: dict | None = None,
        prompt_limit: int = 0, sampling: str = "refuse", upstream: str = "",
    ):  # fmt: skip
        self.function = find("agent", name, {})
        check_call(self.function, **dict.fromkeys(ARGUMENTS))
        self.format_penalty, self.timeout = format_penalty, timeout
        self.max_turns = max_episode_steps or 100
        self.tokenizer, self.own_template = tokenizer, template or {}
        self.prompt_limit = prompt_limit
        self.strict, self.upstream = sampling == "refuse", upstream
        self.session = self.thread = self.call = None

    @functools.cached_property
    def count(self):
        """A function from messages and template arguments to the number of a prompt's tokens."""
        if not self.tokenizer:
            return None
        return _counter(self.tokenizer, tuple(sorted(self.own_template.items())))

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._leave()
        self.turns, self.owed = 0, 0.0
        self.session = Session(self._check, self.strict, self.upstream)
        endpoint().open(self.session)
        job = dict(target=self._run, args=(seed, self.session), daemon=True)
        self.thread = threading.Thread(**job)
        self.thread.start()
        end = self._wait()
        if end is not None:
            self._result(end)
            raise BrokenContract(f"{self._place()} ended without asking {endpoint().base_url}")
        return self._observed()

    def step(self, response: str):
        self.turns += 1
        request, message = self.call.request, heard(self.call.request, response)
        truncated = getattr(response, "truncated", False)
        asked = self.count and self.count(request.messages, request.template)
        said = self.count and self.count(response)
        usage = dict(prompt_tokens=asked or 0, completion_tokens=said or 0)
        usage["total_tokens"] = sum(usage.values())
        self.call.answer = completion(request, message, self.turns, truncated, usage)
        reply = self.call.answer["choices"][0]["message"]
        self.call.done.set()
        end, info = self._wait(), {}
        success, metrics = False, {}
        if end is not None:
            paid, success, metrics = self._result(end)
            self.owed += paid
            text, info = OVER, self._said_last(reply)
        else:
            text, info = self._observed()
        cut = end is None and self.turns >= self.max_turns
        reward, self.owed = self.owed - self.format_penalty * bool(message.error), 0.0
        info |= dict(said=response, action=action(message), action_at=message.at)
        info |= dict(valid=not message.error, success=success)
        if end is not None or cut:
            self._leave()
            info["metrics"] = metrics
        return text, reward, end is not None, cut, info

    def close(self) -> None:
        self._leave()

    def _run(self, seed: int, session: Session) -> None:
        """Run the program, in its thread, and tell `session` how it ended."""
        given = dict(seed=seed, base_url=endpoint().base_url, api_key=session.secret)
        try:
            end = self.function(**given, reward=functools.partial(self._pay, session))
            if inspect.isawaitable(end):
                end = asyncio.run(_awaited(end))
        except BaseException as error:  # also SystemExit, and asyncio's CancelledError
            end = error
        session.events.put((end,))

    def _pay(self, session: Session, amount: float) -> None:
        check_reward(self, "reward", amount)
        if session is self.session and not session.closed:
            self.owed += float(amount)

    def _wait(self):
        """Wait for the program's next request, which becomes `call`, or for its end: (result,)."""
        try:
            event = self.session.events.get(timeout=self.timeout)
        except queue.Empty:
            self._leave()
            late = f"neither asked nor ended within {self.timeout:g} s"
            raise TimeoutError(f"{self._place()} {late}") from None
        self.call = event if isinstance(event, Call) else None
        return None if self.call else event

    def _result(self, end: tuple) -> tuple[float, bool, dict]:
        """Return reward, success and metrics of the program's end; raise what it raised."""
        [result] = end
        if isinstance(result, BaseException):
            self._leave()
            raise result
        if isinstance(result, dict):
            reward, metrics = result.get("reward", 0.0), result.get("metrics", {})
            success = result.get("success", None)
        else:
            reward, metrics, success = 0.0 if result is None else result, {}, None
        if not isinstance(reward, Real):
            line = f"returned {result!r:.80}; it must return a number or a dict with reward"
            raise BrokenContract(f"{self._place()} {line}, success and metrics")
        return float(reward), reward > 0 if success is None else bool(success), dict(metrics)

    def _observed(self) -> tuple[str, dict]:
        request = self.call.request
        last = request.messages[-1]["content"]
        shown = dict(messages=request.messages, template=request.template)
        return last if last.strip() else "(empty)", self._info(
            shown | dict(sampling=request.sampling)
        )

    def _said_last(self, reply: dict) -> dict:
        return self._info(dict(messages=[{"role": "user", "content": OVER}]))

    def _info(self, shown: dict) -> dict:
        return dict(system="", instruction="", kept="") | shown

    def _check(self, request) -> None:
        """Refused: the prompt of a request is too long"""
        if self.count:
            tokens = self.count(request.messages, request.template)
            if tokens > self.prompt_limit:
                said = f"the messages have {tokens} tokens, --prompt-limit is {self.prompt_limit}"
                raise Refused(said, code="context_length_exceeded")

    def _leave(self) -> None:
        """Close the session. A program that does not end by itself is stopped where it can be."""
        if self.session is None:
            return
        endpoint().close(self.session)
        self.session, thread = None, self.thread
        thread.join(0.05)
        if thread.is_alive():
            # It reaches Python code; a program that waits inside of C code ends when it returns.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
            )

    def _place(self) -> str:
        return f"{defined_at(self.function)}{self.function.__qualname__}"


async def _awaited(end):
    return await end


@functools.cache
def _counter(path: str, template: tuple):
    """Return a function that counts tokens of a text, or of the prompt that messages make."""
    from transformers import AutoTokenizer

    from memory.chat import Renderer

    tokenizer = AutoTokenizer.from_pretrained(path)
    render, lock = Renderer(tokenizer, prompt_limit=2**40), threading.Lock()

    def count(said: str | list[dict], given: dict | None = None) -> int:
        with lock:  # tokenizers are not safe for threads
            if isinstance(said, list):
                said = render.write(said, dict(template) | given)
            return len(tokenizer(said, add_special_tokens=False, verbose=False)["input_ids"])

    return count
