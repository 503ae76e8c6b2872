"""Times a turn through the agents' endpoint, and a turn of a plain environment.

    python -m benchmarks.agents

No model is involved. The same responses go to the environment `Plain` and to agent programs that
request them over HTTP. All sessions are open at the same time in one process, and take turns or
have a thread each.
"""

import http.client
import json
import time
from functools import partial

import gymnasium
from gymnasium.spaces import Text

from benchmarks.common import Stopwatch
from common.cli import Parser
from envs import make_env
from envs.pool.resilient import ResilientPool

TURNS = 20  # per episode
SESSIONS = (1, 32, 256)


class Plain(gymnasium.Env):
    """An environment of TURNS turns, whose observation is the number of the turn."""

    observation_space = action_space = Text(1000)

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return "turn 0", self._info()

    def step(self, response):
        self.turn += 1
        info = dict(kept_response=response, action=response, action_at=0, valid=True, success=True)
        return f"turn {self.turn}", 0.0, self.turn == TURNS, False, self._info() | info

    def _info(self):
        return dict(kept="", system="", instruction="")


def agent(seed, base_url, api_key, reward):
    """The same episode as an agent program, over one connection that is kept open."""
    host = base_url.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(host)
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    for turn in range(TURNS):
        body = {"model": "policy", "messages": [{"role": "user", "content": f"turn {turn}"}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        json.load(connection.getresponse())
    connection.close()


def play(make, sessions: int, threads: int = 0) -> tuple[float, float]:
    """Play an episode in each session.

    Returns the milliseconds of wall time and of processor time per turn.
    """
    envs = ResilientPool(make, [[0] for _ in range(sessions)], threads=threads)
    envs.reset()
    with Stopwatch() as took:
        for i in range(sessions):
            envs.send(i, "yes")
        unfinished = sessions
        while unfinished:
            for i, step in envs.poll():
                if step.done:
                    unfinished -= 1
                else:
                    envs.send(i, "yes")
    envs.close()
    turns = sessions * TURNS / 1000
    return took.seconds / turns, took.processor_seconds / turns


def main() -> None:
    parser = Parser("benchmarks.agents", description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, nargs="*", default=SESSIONS, help="open at a time")
    program = partial(make_env, "agent:benchmarks.agents:agent")
    play(program, 1)  # starts the server
    print("| sessions | plain, ms per turn | agent | agent, in threads | agent, processor time |")
    print("|---|---|---|---|---|")
    for sessions in parser.parse_args().sessions:
        plain, _ = play(Plain, sessions)
        in_turn, processor = play(program, sessions)
        threads, _ = play(program, sessions, threads=sessions)
        row = f"| {sessions} | {plain:.2f} | {in_turn:.2f} | {threads:.2f} | {processor:.2f} |"
        print(row, flush=True)
        time.sleep(1)  # lets the connections of this round close


if __name__ == "__main__":
    main()
