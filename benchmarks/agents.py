"""What a turn through the endpoint costs, beside a turn of a plain environment.

    python -m benchmarks.agents

No model takes part: the same responses go to the environment `Plain` and to agent programs that ask
for them over HTTP. Sessions are open at the same time, in one process, and take turns.
"""

import argparse
import http.client
import json
import time
from functools import partial

import gymnasium
from gymnasium.spaces import Text

from benchmarks.common import Stopwatch
from envs import make_env
from envs.pool.resilient import ResilientPool

TURNS = 20  # of an episode
SESSIONS = (1, 32, 256)


class Plain(gymnasium.Env):
    """Says its turn, for TURNS turns."""

    observation_space = action_space = Text(1000)

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return "turn 0", self._info()

    def step(self, response):
        self.turn += 1
        facts = dict(kept_response=response, action=response, action_at=0, valid=True, success=True)
        return f"turn {self.turn}", 0.0, self.turn == TURNS, False, self._info() | facts

    def _info(self):
        return dict(kept="", system="", instruction="")


def agent(seed, base_url, api_key, reward):
    """The same as an agent program, over one connection that is kept open."""
    host = base_url.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(host)
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    for turn in range(TURNS):
        asked = {"model": "policy", "messages": [{"role": "user", "content": f"turn {turn}"}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
        json.load(connection.getresponse())
    connection.close()


def play(make, sessions: int, threads: int = 0) -> tuple[float, float]:
    """Play an episode in each of the sessions; returns (milliseconds, of processor) of a turn."""
    envs = ResilientPool(make, [[0] for _ in range(sessions)], threads=threads)
    envs.reset()
    with Stopwatch() as took:
        for i in range(sessions):
            envs.send(i, "yes")
        left = sessions
        while left:
            for i, step in envs.poll():
                if step.done:
                    left -= 1
                else:
                    envs.send(i, "yes")
    envs.close()
    turns = sessions * TURNS / 1000
    return took.seconds / turns, took.processor_seconds / turns


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    program = partial(make_env, "agent:benchmarks.agents:agent")
    play(program, 1)  # the server starts
    print("| sessions | plain, ms a turn | agent | agent, a thread each | processor time, agent |")
    print("|---|---|---|---|---|")
    for sessions in SESSIONS:
        plain, _ = play(Plain, sessions)
        alone, work = play(program, sessions)
        together, _ = play(program, sessions, threads=sessions)
        print(
            f"| {sessions} | {plain:.2f} | {alone:.2f} | {together:.2f} | {work:.2f} |", flush=True
        )
        time.sleep(1)  # connections of the last round close


if __name__ == "__main__":
    main()
