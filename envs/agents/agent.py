"""Makes an agent program an environment: its requests for chat completions are the observations.

Control is inverted. The program, written as for production, asks an OpenAI-compatible endpoint
(`envs.agents.endpoint`) for completions. A request is an observation, the sampled response is the
action, and the program's return value is the final reward. So one completion is one turn, and the
program may edit its context as it likes: the messages that it sends are the prompt.

    python main.py --env-name agent:my_agent:solve

    def solve(seed, base_url, api_key, reward):     # or async def
        client = OpenAI(base_url=base_url, api_key=api_key)
        answer = client.chat.completions.create(model="policy", messages=..., tools=...)
        reward(0.1)                                  # adds to the reward of the current turn
        reward(0.1, turn=answer.id)                  # of the turn that gave this answer
        return 1.0                                   # or dict(reward=, success=, metrics=)
"""

import copy
import inspect
import itertools
import math
import queue
import string
import threading

import gymnasium
from gymnasium.spaces import Text

from common.awake import get_awake
from common.plugins import check_call, defined_at
from envs.agents import caches, side_by_side
from envs.agents import threads as agent_threads
from envs.agents.completions import parse_response
from envs.agents.endpoint import endpoint
from envs.agents.ends import failure_of, fault_classes, result_of
from envs.agents.event_loop import EventLoop
from envs.agents.origins import WAITING
from envs.agents.session import Call, Session
from envs.agents.tokens import TokenCounter
from envs.credit import earlier_rewards
from envs.ecosystems import find_program
from envs.errors import BrokenContract, Fault
from envs.tools.tool_env import action

ARGUMENTS = ["seed", "base_url", "api_key", "reward"]  # of a program
ENDED = "The program has ended."
_NUMBERS = itertools.count()  # of the agents of a process


class AgentEnv(gymnasium.Env):
    """An environment around `function(seed, base_url, api_key, reward)`.

    name: "module:function", or a task of a library in `envs.ecosystems.PROGRAMS`
    max_episode_steps: turns after which an episode is truncated; default: 100
    timeout: seconds after which a program that neither asks nor ends has failed
    tokenizer: a directory or hub name; with it, prompts above `prompt_limit` tokens get an error,
        and answers report their usage
    template: arguments of the chat template, as --template-kwargs
    sampling: requests with other sampling options than the policy's are refused ("refuse"), sampled
        without these options ("run"), or answered with them but not trained on ("untrained")
    upstream: base URL of another endpoint, which answers requests for other models
    shared: whether other agents have the same process; if so, `side_by_side` checks that first
    """

    family = "agent"
    tasks = ()
    speaks_messages = True
    observation_space = Text(max_length=2**24, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)

    def __init__(
        self,
        name: str,
        format_penalty: float = 0.1,
        max_episode_steps: int | None = None,
        timeout: float = 300.0,
        tokenizer: str = "",
        template: dict | None = None,
        prompt_limit: int = 0,
        sampling: str = "refuse",
        upstream: str = "",
        shared: bool = False,
    ):
        caches.prepare()
        self.function = find_program(name)
        check_call(self.function, **dict.fromkeys(ARGUMENTS))
        self.name = f"{defined_at(self.function)}{name.rpartition(':')[2]}"  # in messages
        # A replay works only if the program repeats its requests. If the program says that it does
        # not, a resumed run begins its next episode instead.
        self.replayable = getattr(self.function, "replayable", True)
        self.faults = fault_classes(self.function, self.name)
        self.format_penalty, self.timeout = format_penalty, timeout
        self.max_turns = max_episode_steps or 100
        self.tokens = TokenCounter(tokenizer, template or {}, prompt_limit)
        self.sampling, self.upstream, self.shared = sampling, upstream, shared
        self.session = self.thread = self.call = None
        self.number, self.loop = next(_NUMBERS), EventLoop()

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._end_session()
        agent_threads.stop_late_programs()
        caches.turn_off()
        caches.forget_clients()
        if self.shared:
            side_by_side.check(self, seed)
        else:
            caches.release_settings()
        self.parse_failures, self.untrained_calls = 0, 0
        self.start(seed)
        end = self._next_event()
        if end is not None:
            result_of(self.name, end)
            asked = f"{self.name} ended without asking {endpoint().base_url}"
            raise BrokenContract(f"{asked}; {caches.advice()}")
        return self._observed()

    def step(self, response: str):
        request = self.call.request
        message, turn = self.answer(response), self.session.turns
        end = self._next_event()
        payments, success, metrics = self.session.take_payments(), False, {}
        reward = math.fsum(payment.amount for payment in payments)
        failure = failure_of(end, self.faults) if end and not self.session.refused else ""
        if end is None:
            text, info = self._observed()
        elif failure:
            text, info = failure, self._info([{"role": "user", "content": failure}])
        else:
            final_reward, success, metrics = result_of(self.name, end)
            reward += final_reward
            text, info = ENDED, self._info([{"role": "user", "content": ENDED}])
        trained = request.sampling.trained
        failed = trained and bool(message.error)  # an untrained call has no format penalty
        self.parse_failures += failed
        self.untrained_calls += not trained
        terminated, truncated = end is not None, end is None and turn >= self.max_turns
        info.update(
            kept_response=response,
            action=action(message),
            action_at=message.at,
            valid=not message.error,
            success=success,
            reply=_reply(message),
            earlier=earlier_rewards(payments, turn),
        )
        if terminated or truncated:
            self._end_session()
            counts = {"parse_failures": self.parse_failures, "program_errors": bool(failure)}
            if self.sampling == "untrained":
                counts["untrained_calls"] = self.untrained_calls
            info["metrics"] = counts | metrics
        return text, reward - self.format_penalty * failed, terminated, truncated, info

    def close(self) -> None:
        self._end_session()
        self.loop.close()

    def start(self, seed: int) -> None:
        """Open a session and run the program in it."""
        self.session = Session(self.tokens, self.sampling, self.upstream)
        endpoint().open(self.session)
        self.thread = threading.Thread(target=self._run, args=(seed, self.session), daemon=True)
        self.session.thread, self.session.name = self.thread, self.name
        self.thread.start()

    def twin(self) -> "AgentEnv":
        """Return another agent with the same program, between its episodes."""
        other = copy.copy(self)
        other.session = other.thread = other.call = None
        other.number, other.loop = next(_NUMBERS), EventLoop()
        return other

    def answer(self, response: str):
        """Answer the current request; return the message that the program gets."""
        self.session.turns += 1
        tokens = self.tokens.count(response)
        message = parse_response(self.call.request, response)
        self.call.respond(response, message, self.session.turns, tokens)
        return message

    def _run(self, seed: int, session: Session) -> None:
        """Run the program in its thread. `session.events` gets (its result or its exception,)."""
        try:
            end = self.function(
                seed=seed,
                base_url=endpoint().url_of(self.number),
                api_key=session.secret,
                reward=session.pay,
            )
            if inspect.isawaitable(end):
                end = self.loop.run(end)
        except BaseException as error:  # also SystemExit, and asyncio's CancelledError
            end = error
        session.events.put((end,))

    def _next_event(self) -> tuple | None:
        """Wait for the program's next request, which becomes `call`, or return its (result,)."""
        try:
            event = get_awake(self.session.events, self.timeout)
        except queue.Empty:
            location = agent_threads.location_of(self.thread) or f"{self.name}: "
            message = f"the program neither asked nor ended within {self.timeout:g} s"
            if endpoint().others_wait(self.session):
                message += f", and {WAITING}"
            self._end_session()
            raise Fault(f"{location}{message}") from None
        self.call = event if isinstance(event, Call) else None
        return None if self.call else event

    def _observed(self) -> tuple[str, dict]:
        request = self.call.request
        info = self._info(request.messages)
        info.update(template=request.template, sampling=request.sampling)
        return request.messages[-1]["content"].strip() or "(empty)", info

    def _info(self, messages: list[dict]) -> dict:
        return dict(
            system="", instruction="", kept="", messages=messages, replayable=self.replayable
        )

    def _end_session(self) -> None:
        """Close the session, if there is one. Later requests of the program are refused."""
        if self.session is not None:
            agent_threads.abandon(self.thread)  # before its request is refused, which it would see
            self.loop.wake()
            endpoint().close(self.session)
        self.session = None


def _reply(message) -> dict:
    """Return the response as a chat message, as logs show it."""
    reply = {"role": "assistant", "content": message.content}
    if message.calls:
        reply["tool_calls"] = [
            {"type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in message.calls
        ]
    return reply
