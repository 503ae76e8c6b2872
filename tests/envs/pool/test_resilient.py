"""The pool of environments: order, seeds, episodes in a row, workers, and what goes wrong."""

import multiprocessing
import queue
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_envs import Dice, broken

from envs import make_env
from envs.pool import resilient as pool_module
from envs.pool.evaluation import evaluation_seeds
from envs.pool.faults import MAX_FAULTS
from envs.pool.host import EnvHost
from envs.pool.make import make_envs
from envs.pool.serial import EpisodeSeeds, training_seeds
from envs.pool.worker_process import _next

PATH = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]
BOTH = pytest.mark.parametrize("workers", [0, 2])


def start(pool, n_env, workers, make=Dice):
    vec_env = pool(make, training_seeds(0, range(n_env)), workers)
    return vec_env, vec_env.reset()


def play(vec_env, sent: dict[int, list[str]]) -> dict[int, list]:
    """Send each environment its responses as fast as it answers; return all Steps."""
    left = {i: list(texts) for i, texts in sent.items()}
    steps = {i: [] for i in sent}
    for i, texts in left.items():
        vec_env.send(i, texts.pop(0))
    while done := vec_env.poll():
        for i, step in done:
            steps[i].append(step)
            if left[i]:
                vec_env.send(i, left[i].pop(0))
    return steps


def test_a_worker_without_requests_prepares_the_next_episodes():
    inbox, prepared = queue.SimpleQueue(), []

    class Env:
        def prepare(self, seed):
            prepared.append(seed)
            inbox.put("request")  # it comes while the first environment prepares

    hosts = {0: EnvHost(Env), 1: EnvHost(Env)}
    for i, host in hosts.items():
        host.env, host.next_seed = Env(), 5 + 2 * i
    assert _next(inbox, hosts) == "request" and prepared == [5]
    assert _next(inbox, hosts) == "request" and prepared == [5, 7]


def test_hosts_get_the_seed_of_the_next_episode(pool):
    vec_env, _ = start(pool, 2, workers=0)
    for i, host in enumerate(vec_env.executor.hosts):
        assert host.next_seed == next(islice(EpisodeSeeds(0, i), 1, None))
    lists = pool(Dice, [[1, 5], [3]], 0)
    lists.reset()
    assert [host.next_seed for host in lists.executor.hosts] == [5, None]
    # from a shared iterator nobody knows who will take the next seed
    panel = pool(Dice, evaluation_seeds(4, 2, range(2)), 0)
    panel.reset()
    assert [host.next_seed for host in panel.executor.hosts] == [None, None]


@BOTH
def test_a_step(pool, workers):
    vec_env, first = start(pool, 3, workers)
    vec_env.send(1, "hello")
    [(i, step)] = vec_env.poll()
    seed = next(iter(EpisodeSeeds(0, 1)))
    assert i == 1
    assert first[1].text.startswith(f"seed {seed} turn 0")
    assert step.observation.text.startswith(f"seed {seed} turn 1")
    assert (step.observation.kept, step.observation.system) == ("kept", "system")
    assert step.observation.instruction == "instruction"
    assert (step.response, step.kept_response, step.action, step.valid) == (
        "hello",
        "said hello",
        "roll",
        True,
    )
    assert (step.reward, step.terminated, step.truncated, step.success) == (
        0.5,
        False,
        False,
        False,
    )
    assert (step.action_at, step.first, step.metrics) == (0, None, {})


@BOTH
def test_poll_returns_steps_in_order_and_once(pool, workers):
    vec_env, _ = start(pool, 4, workers)
    assert vec_env.poll() == [] == vec_env.poll(wait=False)  # nothing was sent: no waiting
    for i in (3, 1, 2):
        vec_env.send(i, "x")
    order = []
    while done := vec_env.poll():
        indices = [i for i, _ in done]
        assert indices == sorted(indices)
        order += indices
    assert sorted(order) == [1, 2, 3]


@BOTH
def test_episodes_follow_each_other(pool, workers):
    vec_env, _ = start(pool, 1, workers)
    seeds = list(islice(EpisodeSeeds(0, 0), 3))
    steps = play(vec_env, {0: ["a", "the end", "a", "b", "c"]})[0]
    ends = [(s.terminated, s.truncated, s.success, s.done) for s in steps]
    no, won, limit = (False,) * 4, (True, False, True, True), (False, True, False, True)
    assert ends == [no, won, no, no, limit]
    # the last observation belongs to the episode that ended, `first` to the next one
    assert steps[1].observation.text.startswith(f"seed {seeds[0]} turn 2")
    assert steps[1].first.text.startswith(f"seed {seeds[1]} turn 0")
    assert steps[4].observation.text.startswith(f"seed {seeds[1]} turn 3")
    assert steps[4].first.text.startswith(f"seed {seeds[2]} turn 0")
    assert (steps[1].metrics, steps[4].metrics) == ({"turns": 2.0}, {"turns": 3.0})
    assert steps[0].first is None and steps[0].metrics == {}


@BOTH
def test_seeds_that_run_out(pool, workers):
    # 0, 1 and 2 play one episode each, 3 none
    vec_env = pool(Dice, [[1], [3], [5], []], workers)
    assert [first is None for first in vec_env.reset()] == [False, False, False, True]
    vec_env.send(0, "end")
    [(_, step)] = vec_env.poll()
    assert step.done and step.first is None
    with pytest.raises(AssertionError, match="environment 0 has no episode to play"):
        vec_env.send(0, "more")


def test_workers_give_the_same_steps_as_one_process(pool):
    texts = {i: ["a", "b", "end", "c", "d", "e", "f"][i:] for i in range(5)}
    runs = []
    for workers in (0, 1, 3):
        vec_env, first = start(pool, 5, workers)
        runs.append((first, play(vec_env, texts)))
    assert runs[0] == runs[1] == runs[2]


class Meeting(Dice):
    """A turn lasts until all environments of the process are in one."""

    barrier = threading.Barrier(64)

    def step(self, response):
        self.barrier.wait(timeout=60)
        return super().step(response)


def test_threads_wait_in_parallel(pool):
    # one after the other they would wait for ever; all answers come in one batch or a few
    vec_env = pool(Meeting, training_seeds(0, range(64)), threads=64)
    first = vec_env.reset()
    calm = pool(Dice, training_seeds(0, range(64)))
    assert first == calm.reset()
    sent = {i: ["a", "end", "b"] for i in range(64)}
    assert play(vec_env, sent) == play(calm, sent)
    assert not vec_env.faults


def test_an_environment_stays_in_its_thread(pool):
    vec_env = pool(Threaded, training_seeds(0, range(4)), threads=2)
    vec_env.reset()
    steps = play(vec_env, {i: ["a", "b"] for i in range(4)})
    threads = [{step.kept_response for step in steps[i]} for i in range(4)]
    assert all(len(names) == 1 for names in threads)
    assert threads[0] == threads[2] != threads[1] == threads[3]


class Threaded(Dice):
    def __init__(self):
        super().__init__()
        self.made = threading.get_ident()

    def step(self, response):
        text, reward, terminated, truncated, info = super().step(response)
        threads = f"{self.made} {threading.get_ident()}"
        return text, reward, terminated, truncated, info | {"kept_response": threads}


def test_close_leaves_no_thread(pool):
    vec_env = pool(Dice, training_seeds(0, range(4)), threads=2)
    threads = vec_env.executor.threads
    vec_env.reset()
    vec_env.close()
    vec_env.close()
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("options", [{"workers": 2}, {"threads": 4}], ids=str)
def test_poll_gathers_answers_that_arrive_together(pool, options, tmp_path, monkeypatch):
    # an engine in lock-step wants all answers at once; environment 1 answers when 0 has answered
    monkeypatch.setattr(pool_module, "GATHER_SECONDS", 30.0)
    vec_env = pool(partial(Dice, str(tmp_path)), training_seeds(0, range(2)), **options)
    vec_env.reset()
    answered = vec_env._answered

    def note(i, answer):
        answered(i, answer)
        (tmp_path / "go").touch()

    monkeypatch.setattr(vec_env, "_answered", note)
    vec_env.send(1, "wait")
    vec_env.send(0, "x")
    assert [i for i, _ in vec_env.poll()] == [0, 1]


def test_poll_waits_only_briefly_for_slow_environments(pool, tmp_path):
    vec_env = pool(partial(Dice, str(tmp_path)), training_seeds(0, range(2)), threads=2)
    vec_env.reset()
    vec_env.send(1, "wait")
    vec_env.send(0, "x")
    assert [i for i, _ in vec_env.poll()] == [0]
    (tmp_path / "go").touch()
    assert [i for i, _ in vec_env.poll()] == [1]


SCRIPT = """
import sys, wave
sys.path[:0] = {path!r}
from small_envs import Modules
from envs.pool.serial import training_seeds
from envs.pool.resilient import ResilientPool
vec_env = ResilientPool(Modules, training_seeds(0, range(1)), workers=1)
print(vec_env.reset()[0].text)
vec_env.close()
"""


def test_workers_do_not_import_what_the_script_imports(tmp_path):
    # `wave` stands for torch; the script has no `if __name__ == "__main__"` to protect it either
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=PATH))
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    imported = set(ran.stdout.split())
    assert {"gymnasium", "small_envs"} <= imported
    assert not {"wave", "torch", "transformers", "minigrid"} & imported


def test_a_slow_environment_delays_only_its_own_worker(pool, tmp_path):
    # two workers: 0 and 2 live in one, 1 and 3 in the other; 0 waits for a file
    vec_env, _ = start(pool, 4, 2, make=partial(Dice, str(tmp_path)))
    vec_env.send(0, "wait")
    vec_env.send(2, "behind it")
    for _ in range(5):
        vec_env.send(1, "x")
        vec_env.send(3, "x")
        answered = vec_env.poll()
        while len(answered) < 2:
            answered += vec_env.poll()
        assert sorted(i for i, _ in answered) == [1, 3]
    assert vec_env.poll(wait=False) == []
    (tmp_path / "go").touch()
    answered = vec_env.poll()
    while len(answered) < 2:
        answered += vec_env.poll()
    assert [i for i, _ in answered] == [0, 2]


def test_a_busy_environment_lets_a_signal_be_noticed(pool, tmp_path, monkeypatch):
    monkeypatch.setattr("envs.pool.resilient.POLL_SECONDS", 0.01)
    vec_env = pool(partial(Dice, str(tmp_path)), training_seeds(0, range(1)), threads=1)
    vec_env.reset()
    vec_env.send(0, "wait")
    assert vec_env.poll() == []  # it comes back, although the answer has not come
    (tmp_path / "go").touch()
    while not (answered := vec_env.poll()):
        pass
    assert [i for i, _ in answered] == [0]


def test_many_large_messages_do_not_block(pool, tmp_path):
    # 40 x 100 kB are sent before the worker reads the second: more than any pipe holds
    vec_env, _ = start(pool, 40, 1, make=partial(Dice, str(tmp_path)))
    vec_env.send(0, "wait")
    for i in range(1, 40):
        vec_env.send(i, "x" * 100_000)
    (tmp_path / "go").touch()
    count = 0
    while count < 40:
        count += len(vec_env.poll())


@BOTH
def test_an_environment_that_cannot_be_made(pool, workers):
    # a user's mistake stays a ValueError with one line, wherever it happens
    with pytest.raises(ValueError, match="^no such thing$"):
        vec_env = pool(partial(broken, "no such thing"), training_seeds(0, range(1)), workers)
        vec_env.reset()


def test_one_answer_per_turn(pool):
    vec_env, _ = start(pool, 2, 0)
    vec_env.send(0, "x")
    with pytest.raises(AssertionError, match="environment 0 is still busy"):
        vec_env.send(0, "y")


def test_close_leaves_no_process(pool):
    vec_env, _ = start(pool, 4, 2)
    processes = [worker.process for worker in vec_env.executor.workers]
    vec_env.send(0, "x")
    vec_env.close()
    vec_env.close()
    assert [process.exitcode for process in processes] == [0, 0]
    assert not set(processes) & set(multiprocessing.active_children())


ORPHANS = """
import os, signal, sys
sys.path[:0] = {path!r}
from small_envs import Dice
from envs.pool import executors
from envs.pool.serial import training_seeds
from envs.pool.resilient import ResilientPool
executors.CLOSE_SECONDS = 0.5  # seconds; the worker that hangs would use them all
vec_env = ResilientPool(Dice, training_seeds(0, range(2)), workers=2)
vec_env.reset()
vec_env.send(0, {word!r})  # for ever
print("started", flush=True)
{end}
"""
ENDS = {
    "sys.exit(0)": 0,
    "raise ValueError": 1,
    "vec_env.close()": 0,
    "os.kill(os.getpid(), signal.SIGTERM)": -signal.SIGTERM,
    "os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("word", ["sleep", "spin"])
def test_workers_end_with_their_parent(end, word):
    # "spin" holds the interpreter's lock, so no other thread of that worker runs.
    # The workers inherit stdout, so reading to its end waits until all of them are gone.
    script = ORPHANS.format(path=PATH, word=word, end=f"import time; time.sleep(0.5); {end}")
    parent = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    assert (parent.returncode, parent.stdout) == (ENDS[end], b"started\n")


def test_a_named_environment_in_workers(pool):
    seeds = [[1], [3]]
    steps = []
    for workers in (0, 2):
        vec_env = pool(partial(make_env, "toy", format_penalty=0.5), seeds, workers)
        vec_env.reset()
        steps.append(play(vec_env, {0: ["red", "ACTION: fly"], 1: ["blue"]}))
    assert steps[0] == steps[1]
    assert not steps[0][0][1].valid and steps[0][0][1].reward == -0.5


def test_the_environments_of_the_command_line():
    environment = SimpleNamespace(
        env_name="toy",
        format_penalty=0.25,
        on_invalid="default",
        memory="window",
        max_episode_steps=1,
        env_workers=0,
        data=None,
        prompts=None,
    )
    envs = make_envs(environment, None, evaluation_seeds(2, 2, range(2)))
    envs.reset()
    [step] = play(envs, {1: ["ACTION: fly"]})[1]
    assert (step.reward, step.truncated, step.seed) == (-0.25, True, 3)
    assert envs.rate.max_faults == MAX_FAULTS == 0.1
