"""Keeps the untrained calls of agents (--endpoint-sampling untrained) out of `collect`.

A program may ask for a response that is not sampled from the policy's own distribution, for example
with top_p or a JSON schema. Such a call is not a training sample. Here the engine answers it, and
the program gets the answer. The reward of the call is added to the turn before it or, if there is
none, to the first turn of the episode.
"""

from dataclasses import replace

from common.chat import Chat
from common.wrapper import Wrapper
from envs.credit import credited
from envs.errors import EnvError, Fault
from envs.pool.faults import check_false_starts
from envs.text_env import Observation, Step

NO_TURN = Fault("the program ended without a trained turn: all of its calls were untrained")


def with_untrained_calls(sampling: str, envs, engine, render, seed: int, evaluation: bool = False):
    """Return the pool and the engine as `collect` uses them.

    sampling: --endpoint-sampling; seed: the seed of `collect`
    evaluation: whether an episode without a turn counts as a failure
    """
    if sampling != "untrained":
        return envs, engine
    engine = engine.inner if isinstance(engine, SampleEngine) else engine
    turns = TurnPool(envs, engine, render, seed, evaluation)
    return turns, SampleEngine(engine, turns)


class SampleEngine(Wrapper):
    """An engine whose `step` returns training samples; other responses go to their programs."""

    def __init__(self, engine, pool: "TurnPool"):
        super().__init__(engine)
        self.pool = pool

    def step(self) -> list:
        samples = []
        for i, response in self.inner.step():
            if response.prompt.sampling.trained:
                samples.append((i, response))
            else:
                self.pool.answer_call(i, response)
        return samples


class TurnPool(Wrapper):
    """A pool whose `poll` returns complete turns, and lets the engine answer untrained calls."""

    def __init__(self, envs, engine, render, seed: int, evaluation: bool):
        super().__init__(envs)
        self.engine, self.render, self.seed, self.evaluation = engine, render, seed, evaluation
        # A state is saved between batches, where no turn waits for its untrained calls.
        self.turns: list[Step | None] = [None] * envs.n_env  # the last turn of each episode
        self.rewards = [0.0] * envs.n_env  # paid before the first turn of the episode
        shown = [envs.observation(i) for i in range(envs.n_env)]
        # The policy's last request of each episode; None: it has had none
        self.requests = [request if _is_trained(request) else None for request in shown]
        self.calls: set[int] = set()  # environments that got the answer to an untrained call
        self.failures = [0] * envs.n_env  # episodes in a row that ended without a turn
        self.lines = [""] * envs.n_env  # the message about the last of them
        self.worked = False  # whether a turn has been completed

    def answer_call(self, i: int, response) -> None:
        """Let environment i go on with the response to an untrained call."""
        self.calls.add(i)
        self.inner.send(i, response.text, response.truncated)

    def poll(self, wait: bool = True) -> list[tuple[int, Step]]:
        complete = []
        for i, answer in self.inner.poll(wait):
            step = self._add(i, answer)
            if step is None:  # the episode ended without a turn
                self._submit(i, answer.first)
            elif step.done or step.observation.sampling.trained and self.turns[i]:
                complete.append((i, self._at_a_request(i, step)))
            else:
                self._submit(i, step.observation)
            shown = answer.first if answer.done else answer.observation
            if answer.done or _is_trained(shown):
                self.requests[i] = shown if _is_trained(shown) else None
        return complete

    def _at_a_request(self, i: int, step: Step) -> Step:
        """Let an episode that an untrained call cut end at the policy's last request: V may stand
        for the rest, and the critic knows no other requests."""
        cut = step.truncated and not step.terminated and not _is_trained(step.observation)
        return replace(step, observation=self.requests[i]) if cut and self.requests[i] else step

    def _add(self, i: int, step: Step) -> Step | None:
        """Add a Step to the turn it belongs to; return that turn, or `step` before the first one.
        None: the episode is over without a turn, and training goes on with the next one"""
        turn, untrained_call = self.turns[i], i in self.calls
        self.calls.discard(i)
        if not untrained_call:
            turn = replace(step, reward=step.reward + self.rewards[i])
        elif turn is not None:
            turn = _merged(turn, step)
        else:
            self.rewards[i] += step.reward
            if step.done:
                self.rewards[i] = 0.0
                return self._without_turn(i, step)
            return step
        self.turns[i], self.rewards[i] = (None if step.done else turn), 0.0
        if not step.fault:
            self._count_turn(i)
        return turn

    def _without_turn(self, i: int, step: Step) -> Step | None:
        """Note that an episode ended without a turn. EnvError: this happens too often"""
        line = step.fault or self.log_fault(i, step.seed, step.number, NO_TURN)
        if self.evaluation:
            return replace(
                step,
                reward=0.0,
                terminated=False,
                truncated=True,
                success=False,
                metrics={},
                fault=line,
            )
        if step.first is None:
            raise EnvError(line)
        self.failures[i], self.lines[i] = self.failures[i] + 1, line
        check_false_starts(self.failures[i], self.worked, line)
        return None

    def _count_turn(self, i: int) -> None:
        if self.failures[i] == 1:
            self.rate.count(self.lines[i])
        self.failures[i], self.worked = 0, True

    def _submit(self, i: int, request: Observation) -> None:
        """Let the engine answer a request that comes before the next turn is complete."""
        chat = Chat([], [], list(request.messages), request.template, request.sampling)
        self.engine.submit(i, self.render(chat), seed=(self.seed, *self.position(i), 0))


def _is_trained(request: Observation | None) -> bool:
    """Whether the policy answers a request, so that the answer is a training sample."""
    return request is not None and request.sampling.trained


def _merged(turn: Step, call: Step) -> Step:
    """Return a turn with the reward and the end of an untrained call that followed it."""
    if call.fault:  # the call failed: the episode ends with the turn
        return replace(turn, truncated=True, fault=call.fault, first=call.first)
    turn = credited(turn, *getattr(call, "earlier", ()))
    return replace(
        turn,
        reward=turn.reward + call.reward,
        terminated=call.terminated,
        truncated=call.truncated,
        success=call.success,
        observation=call.observation,
        first=call.first,
        metrics=call.metrics,
    )
