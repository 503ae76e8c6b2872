"""Agent programs as environments: turns, rewards, ends, faults, replays, and how programs go."""

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

import agent_programs as agents
import pytest
from own_files import location, work_in

from common.chat import Sampling
from common.plugins import UserError
from envs import make_env
from envs.agents import endpoint
from envs.agents import threads as agent_threads
from envs.checked import checked_act
from envs.errors import BrokenContract, EnvError, Fault, fault_of
from envs.pool.cursor import ResponseText
from envs.pool.serial import training_seeds
from envs.text_env import act, begin
from memory.verbatim import VerbatimMemory

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def play():
    """play(program, *responses, **options) -> the first observation and the Steps."""
    made = []

    def env(program: str, **options):
        made.append(make_env(f"agent:agent_programs:{program}", **{"timeout": 10} | options))
        return made[-1]

    def play(program: str, *responses: str, seed=0, **options):
        first = begin(env(program, **options), seed)
        return first, [checked_act(made[-1], response) for response in responses]

    play.env = env
    yield play
    for env in made:
        env.close()


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The programs as a user has them, in a module my_agents beside him."""
    shutil.copy(agents.__file__, tmp_path / "my_agents.py")
    work_in(tmp_path, monkeypatch)
    yield
    sys.modules.pop("my_agents", None)


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(endpoint, "REFUSAL_SECONDS", 0.01)


def texts(observations) -> list[str]:
    return [observation.text for observation in observations]


# ---- turns and rewards --------------------------------------------------------------------------


def test_a_completion_is_a_turn(play):
    first, steps = play("echo", "yes", "no", "you", seed=7)
    assert first.messages == ({"role": "user", "content": "seed 7 turn 0 said "},)
    assert (first.system, first.instruction, first.template) == ("", "", {})
    assert first.sampling == Sampling()
    # a payment belongs to the turn before it: 0.25 for each y, and 1 at the end
    assert [step.reward for step in steps] == [0.25, 0.0, 1.25]
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False)] * 2 + [
        (True, False)
    ]
    assert texts(step.observation for step in steps) == [
        "seed 7 turn 1 said yes", "seed 7 turn 2 said yes no", "The program has ended."
    ]  # fmt: skip
    assert [step.success for step in steps] == [False, False, True]
    assert steps[-1].metrics == {"letters": 8, "parse_failures": 0, "program_errors": 0}
    assert steps[0].reply == {"role": "assistant", "content": "yes"}


def test_the_id_of_a_response_pays_its_turn(play):
    _, steps = play("pays_earlier", "a", "pay 1", "pay 3", "pay 2")
    # what belongs to the turn itself (pay 3) is its own reward, like all that is paid without an id
    assert [step.reward for step in steps] == [0.0, 1.0, 1.0, 1.5]
    assert [getattr(step, "earlier", ()) for step in steps] == [(), ((1, 1.0),), (), ((2, 1.0),)]


def test_parallel_completions_are_paid_one_by_one(play):
    _, steps = play("pays_parallel", *(f"worth {k}" for k in range(4)))
    assert sum(step.reward for step in steps) == 0 + 1 + 2 + 3 + 0.5
    # all come with the last Step, or with the one before it if the answers overtake one another
    assert {pair for step in steps for pair in getattr(step, "earlier", ())} >= {(1, 0.0), (2, 1.0)}


@pytest.mark.parametrize("named", ["'turn-3'", "'turn-0'", "'call00100'", "'turn-1 '", "int()"])
def test_an_unknown_id_gets_one_line(play, named):
    with pytest.raises(BrokenContract) as caught:
        play("pays_earlier", "a", f"pay {named}")
    message = f"pays_earlier paid the turn {eval(named)!r}; it must be the `id` of a completion"
    assert str(caught.value).startswith(message)


def test_the_next_prompt_is_what_the_program_sent(play):
    first, [step, *_] = play("echo", "yes")
    memory = VerbatimMemory(8)
    memory.reset(first)
    assert memory.messages() == list(first.messages)
    memory.update(step)
    assert memory.messages() == [{"role": "user", "content": "seed 0 turn 1 said yes"}]


def test_an_episode_of_too_many_turns_is_cut(play):
    _, steps = play("echo", "yes", "no", max_episode_steps=2)
    assert (steps[-1].terminated, steps[-1].truncated, steps[-1].success) == (False, True, False)
    # the next request came: V of it may stand for the rest
    assert steps[-1].observation.text == "seed 0 turn 2 said yes no"
    assert steps[-1].metrics == {"parse_failures": 0, "program_errors": 0}


def test_an_async_program(play):
    _, steps = play("later", "1", "2")
    assert steps[-1].reward == 1 and steps[-1].terminated


def test_concurrent_requests_are_answered_in_the_order_of_arrival(play):
    first, steps = play("together", *(f"answer {k}" for k in range(4)))
    asked = texts([first, *(step.observation for step in steps)])
    assert asked[:4] == [f"number {k}" for k in range(4)]
    assert steps[-1].reward == 4


def test_tool_calls_go_to_the_program_and_their_results_come_back(play):
    message = 'Well.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    first, (called, bad) = play("with_tools", message, "<tool_call>{oh</tool_call>")
    assert [tool["function"]["name"] for tool in first.template["tools"]] == ["add"]
    asked, result = called.observation.messages[-2:]
    # templates take arguments as mappings; the id is the same in a replay
    assert asked["content"] == "Well." and asked["tool_calls"] == [
        {"id": "call00100", "type": "function", "function": {"name": "add", "arguments":
         {"a": 1, "b": 2}}}]  # fmt: skip
    assert result == {"role": "tool", "tool_call_id": "call00100", "content": "3"}
    assert called.valid and called.action == '[{"name": "add", "arguments": {"a": 1, "b": 2}}]'
    # a call that cannot be read is words for the program, and costs the format penalty
    assert (bad.valid, bad.terminated, bad.reward) == (False, True, 1 - 0.1)
    assert bad.metrics == {"parse_failures": 1, "program_errors": 0}


def test_a_cut_answer_has_finish_reason_length(play):
    _, steps = play("cut", *[ResponseText("x", truncated=True)] * 4)
    assert steps[-1].reward == 1
    _, steps = play("cut", *[ResponseText("x", truncated=True)] * 3, ResponseText("x"))
    assert steps[-1].reward == 0


@pytest.mark.parametrize("response", ["1", "True", "0.5", "None", "{'reward': 1, 'success': 0}"])
def test_valid_results_of_a_program(response, play):
    _, [step] = play("returns", response)
    assert step.reward == {"1": 1, "True": 1, "0.5": 0.5, "None": 0}.get(response, 1)
    assert step.success == (response in ("1", "True", "0.5"))


@pytest.mark.parametrize(
    "response",
    [
        "'much'",
        "float('nan')",
        "{'reward': 1, 'metrics': {'a': 'b'}}",
        "[1]",
        "{'rewards': 1}",
        "{'reward': 1, 'sucess': True}",
    ],
)
def test_invalid_results_of_a_program(response, play):
    with pytest.raises(
        BrokenContract, match=r"returns returned .*; it must return a finite number"
    ):
        play("returns", response)


def test_a_reward_must_be_a_number(play):
    with pytest.raises(BrokenContract, match="pays_words paid 'much'; it must be a finite number"):
        play("pays_words", "hello")


def test_async_programs_of_an_agent_share_an_event_loop(play):
    agents.SHARED.clear()
    env = play.env("keeps_a_lock", max_episode_steps=3)
    for seed in range(3):
        assert begin(env, seed).text == "one"
        act(env, "1")
        assert act(env, "2").reward == 1
    begin(env, 3)  # it is cut, and the next ones go on in the same loop
    env.reset(seed=4)
    assert act(env, "1").observation.text == "two" and act(env, "2").reward == 1


# ---- what goes wrong ----------------------------------------------------------------------------


def test_an_exception_after_a_response_is_a_failure_of_the_policy(play, mine):
    env = make_env("agent:my_agents:breaks", timeout=10)
    begin(env, 0)
    assert act(env, "good").reward == 0.25
    step = act(env, "KeyError('lost')")
    # what the program had paid before it broke, and nothing else
    assert (step.reward, step.terminated, step.truncated, step.success) == (0.5, True, False, False)
    assert step.metrics == {"parse_failures": 0, "program_errors": 1}
    assert step.observation.text == f"{location('my_agents.py', 'breaks')}KeyError('lost')"
    assert begin(env, 2).text == "say good"  # the next episode is as any other
    env.close()


@pytest.mark.parametrize("error", ["ConnectionError()", "TimeoutError()", "MemoryError()",
                                   "ImportError('x')", "OSError(24, 'too many open files')",
                                   "ExceptionGroup('g', [ValueError(), TimeoutError()])",
                                   "APITimeoutError()", "RuntimeError('Event loop is closed')",
                                   "RuntimeError('bound to a different event loop')"])  # fmt: skip
def test_what_no_response_causes_is_a_fault(error, play):
    env = play.env("breaks")
    begin(env, 0)
    with pytest.raises(BaseException) as raised:
        act(env, error)
    assert fault_of(raised.value).error.endswith(repr(raised.value))


def test_a_program_declares_its_own_faults(play, monkeypatch):
    monkeypatch.setattr(agents.breaks, "faults", (LookupError,), raising=False)
    env = play.env("breaks")
    begin(env, 0)
    with pytest.raises(KeyError):
        act(env, "KeyError('lost')")
    monkeypatch.setattr(agents.breaks, "faults", "KeyError")
    with pytest.raises(UserError, match="breaks.faults is 'KeyError'; it must be a tuple of"):
        play.env("breaks")


def test_a_refusal_that_no_response_causes_makes_the_exception_a_fault(play):
    env = play.env("asks_greedily")
    begin(env, 0)
    with pytest.raises(agents.Error, match="400: .*temperature 0 is greedy"):
        act(env, "hello")


def test_a_global_client_that_agents_overwrite_ends_the_run_with_its_cause(pool):
    envs = pool(partial(make_env, "agent:agent_programs:overwrites", timeout=10), [[1], [2]])
    envs.reset()
    envs.send(0, "hello")  # its second request has the key of agent 1
    with pytest.raises(UserError, match="overwrites: an agent asked with the API key of another"):
        envs.poll()


def test_a_global_client_is_a_fault_with_its_cause_during_a_run(pool):
    make = partial(make_env, "agent:agent_programs:overwrites", timeout=10)
    envs = pool(make, [[1, 3], [2]])
    envs.reset()
    envs.send(1, "hello")  # its client is the last one that was set
    [(_, step)] = envs.poll()
    assert step.observation.text == "second of 2"
    envs.send(0, "hello")
    [(_, step)] = envs.poll()
    assert step.truncated and "asked with the API key of another agent" in step.fault
    assert step.first.text == "first of 3"


def test_a_global_client_of_unknown_threads_has_its_cause_when_time_is_up(pool):
    make = partial(make_env, "agent:agent_programs:overwrites_for_threads", timeout=2)
    envs = pool(make, [[1, 3], [2]])
    envs.reset()
    envs.send(0, "hello")  # the second request of agent 0 waits in the session of agent 1
    [(_, step)] = envs.poll()
    assert "neither asked nor ended within 2 s, and more than one request waits" in step.fault
    assert "--env-workers" in step.fault


def test_agents_that_share_connections_have_no_fault(pool):
    pytest.importorskip("httpx")
    envs = pool(partial(make_env, "agent:agent_programs:shares_connections"), [[1], [2], [3]])
    assert texts(envs.reset()) == ["1: 0", "2: 0", "3: 0"]
    for turn in (1, 2):
        for i in range(3):
            envs.send(i, "yes")
            [(_, step)] = envs.poll()
            assert step.observation.text == f"{i + 1}: {turn}"
    assert not envs.faults


def test_a_fault_after_a_response_has_the_users_line(pool, mine):
    envs = pool(partial(make_env, "agent:my_agents:crash"), [[1, 2]])
    envs.reset()
    envs.send(0, "hello")
    [(_, step)] = envs.poll()
    assert step.truncated and step.fault
    assert step.fault.endswith(f"{location('my_agents.py', 'crash')}ConnectionError('lost')")
    assert step.first.text == "hello"  # the next episode has begun


def test_a_crash_before_the_first_request(pool, mine):
    line = f"{location('my_agents.py', 'early_crash')}KeyError"
    with pytest.raises(EnvError, match=line):
        pool(partial(make_env, "agent:my_agents:early_crash"), [[1, 2]]).reset()


def test_a_program_that_ends_without_a_request(play, pool):
    with pytest.raises(BrokenContract, match="ends_at_once ended without asking http://127.0.0.1"):
        play("ends_at_once")


def test_a_program_may_take_as_long_as_it_likes(play):
    assert play("echo", timeout=float("inf"))[0].text


def test_a_program_that_sends_no_request_is_a_fault_after_the_time_limit(mine):
    env = make_env("agent:my_agents:never_asks", timeout=0.3)
    with pytest.raises(Fault) as fault:
        begin(env, 0)
    late = "the program neither asked nor ended within 0.3 s"
    # the line in which it hangs
    assert fault.value.error == f"{location('my_agents.py', 'wait')}{late}"


def test_a_tool_that_hangs_in_a_pool_is_a_fault_and_the_process_ends(mine):
    """Python itself waits for the threads of pools, so the process would never end."""
    program = """
from common.chat import Sampling
from common.plugins import UserError
from envs import make_env
from envs.errors import Fault
from envs.text_env import begin
from run import process

def program():
    env = make_env("agent:my_agents:hangs_in_a_pool", timeout=0.2)
    try:
        begin(env, 0)
    except Fault as fault:
        print(fault.error)
    env.close()
    return 7

process.EXIT_SECONDS = 0.2
process.end_with(program)
"""
    run = dict(capture_output=True, text=True, timeout=60)
    run |= dict(env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.getcwd()}"})
    done = subprocess.run([sys.executable, "-c", program], **run)
    late = "the program neither asked nor ended within 0.2 s"
    assert done.stdout == f"{location('my_agents.py', 'hangs_in_a_pool')}{late}\n", done.stderr
    assert done.returncode == 7


def test_hanging_programs_do_not_accumulate(play, monkeypatch):
    monkeypatch.setattr(agent_threads, "GRACE_SECONDS", 0.1)
    for _ in range(5):
        with pytest.raises(Fault):
            play("never_asks", timeout=0.2)
    time.sleep(0.15)
    agent_threads.stop_late_programs()  # it stops threads that make no further requests, too
    assert gone("never_asks")


def test_a_program_that_sleeps_in_its_event_loop_is_stopped_at_once(play):
    _, steps = play("sleeps", "a", max_episode_steps=1)
    assert steps[-1].truncated
    assert gone("sleeps")


def gone(program: str) -> bool:
    """Whether the threads of a program end within some seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        agent_threads.stop_late_programs()
        if not any(thread.is_alive() for _, thread in agent_threads._abandoned):
            return True
        time.sleep(0.05)
    return False


def test_a_program_that_catches_every_exception_ends_as_well(play, monkeypatch):
    monkeypatch.setattr(agent_threads, "GRACE_SECONDS", 0.1)
    _, steps = play("stubborn", "a", "b", max_episode_steps=2)
    assert steps[-1].truncated
    assert gone("stubborn")


AFTER_THE_END = """
import logging, sys, threading, time
from envs import make_env
from envs.agents import threads as agent_threads
from envs.checked import checked_act
from envs.text_env import act, begin

agent_threads.GRACE_SECONDS = 0.1
HANDLERS
for program, seed in (("retries", 1), ("retries", 4), ("forgets", 0), ("reports", 0)):
    env = make_env(f"agent:agent_programs:{program}", max_episode_steps=1)
    begin(env, seed)
    assert act(env, "a").truncated
    env.close()
deadline = time.monotonic() + 20
left = agent_threads._abandoned  # and threads of their own; this one and two of the endpoint stay
while threading.active_count() > 3 or any(thread.is_alive() for _, thread in left):
    agent_threads.stop_late_programs()
    assert time.monotonic() < deadline
    time.sleep(0.05)
logging.getLogger("framework").error("a tool failed")
logging.getLogger("framework").error("no place for", "this")  # a slip, which raises nothing
failed = threading.Thread(target=lambda: 1 / 0)
failed.start()
failed.join()
"""


@pytest.mark.parametrize(
    "handlers", ["", "logging.getLogger().addHandler(logging.StreamHandler())"]
)
def test_nothing_is_printed_after_the_end_of_an_episode(handlers):
    path = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    run = dict(capture_output=True, text=True, timeout=60, env=path)
    done = subprocess.run(
        [sys.executable, "-c", AFTER_THE_END.replace("HANDLERS", handlers)], **run
    )
    # nothing about late requests, and all that has other causes
    first, *_, last = done.stderr.splitlines()
    assert first == "a tool failed", done.stderr
    assert last == "ZeroDivisionError: division by zero"
    assert "episode" not in done.stderr and done.stdout == ""


def test_a_program_that_is_starting_a_thread_is_stopped():
    def starts():
        with suppress(SystemExit):
            while True:
                threading.Thread(target=int).start()
                time.sleep(1e-4)

    for _ in range(100):
        program = threading.Thread(target=starts, daemon=True)
        program.start()
        agent_threads.abandon(program)
        program.join(timeout=20)
        assert not program.is_alive()


def test_a_program_whose_thread_could_not_start_is_abandoned():
    agent_threads.abandon(threading.Thread(target=int))  # as where the system has no more threads
    assert gone("int")


def test_too_many_programs_that_do_not_end_are_a_fault(play, monkeypatch):
    stop = threading.Event()

    def hang():
        while not stop.is_set():
            with suppress(SystemExit):
                stop.wait()

    late = [threading.Thread(target=hang, daemon=True) for _ in range(3)]
    for thread in late:
        thread.start()
    monkeypatch.setattr(agent_threads, "MAX_LATE", 3)
    monkeypatch.setattr(agent_threads, "_abandoned", [(-inf, thread) for thread in late])
    with pytest.raises(Fault, match="3 programs of earlier episodes do not end; --env-workers"):
        play("echo")
    stop.set()
    for thread in late:
        thread.join()
    play("echo")  # there is room again


def test_a_program_that_does_not_read_its_answers(play):
    first, steps = play("deaf", "1", "2", "3")
    assert texts([first, *(step.observation for step in steps)])[:3] == ["one", "two", "three"]
    assert steps[-1].reward == 1


def test_a_client_that_retries_makes_no_second_turn(play, monkeypatch):
    monkeypatch.setattr(endpoint, "KEEP_ALIVE_SECONDS", 60.0)  # nothing keeps the client waiting
    env = play.env("impatient")
    begin(env, 0)
    time.sleep(0.7)  # some time-outs of the client
    step = act(env, "patience")
    assert step.terminated and step.reward == 1


def test_an_answer_between_a_time_out_and_the_retry_is_not_lost(play, monkeypatch):
    monkeypatch.setattr(endpoint, "KEEP_ALIVE_SECONDS", 60.0)
    env = play.env("hurried")
    begin(env, 0)
    time.sleep(0.2)
    assert not act(env, "once").done  # the retry took this answer; now it asks on purpose
    assert act(env, "twice").reward == 1


def test_a_refused_request_is_an_error_of_the_program(play):
    first, [step] = play("refused", "yes")
    assert first.text.startswith("400: ") and "top_p cuts the distribution off" in first.text
    assert step.reward == 1
    first, _ = play("refused", sampling="run")
    assert first.text == "hello"  # served with the run's sampling


def test_a_prompt_of_two_megabytes_exceeds_the_prompt_limit(play, model_dir):
    options = dict(tokenizer=model_dir, prompt_limit=500, timeout=inf)  # tokenizing takes long
    first, [step] = play("long_winded", "yes", **options)
    # the template of the tests: "user: ", the text, a line break, and "assistant: "
    tokens = 6 + 2**21 + 1 + 11
    assert first.text.startswith("400: ") and "context_length_exceeded" in first.text
    assert f"the messages have {tokens} tokens, --prompt-limit is 500" in first.text
    assert step.reward == 1


def test_unicode(play, model_dir):
    first, [step] = play("surrogate", "∑ Käse 🧀", tokenizer=model_dir, prompt_limit=500)
    assert first.text == "Käse 🧀 \ud800 ∑" and step.reward == 1


# ---- many at once, and again --------------------------------------------------------------------


def responses(i: int) -> list[str]:
    return [f"{'y' if (i + k) % 2 else 'n'}{i}" for k in range(3)]


def play_all(envs) -> list[list]:
    """Play an episode of `echo` in each environment; returns the Steps."""
    envs.reset()
    steps = [[] for _ in range(envs.n_env)]
    for i in range(envs.n_env):
        envs.send(i, responses(i)[0])
    while any(not told or not told[-1].done for told in steps):
        for i, step in envs.poll():
            steps[i].append(step)
            if not step.done:
                envs.send(i, responses(i)[len(steps[i])])
    return steps


def test_256_agents_in_one_process(pool):
    before = threading.active_count()
    envs = pool(partial(make_env, "agent:agent_programs:echo"), [[k] for k in range(256)])
    steps = play_all(envs)
    # each y pays .25, and the end 1
    for i, told in enumerate(steps):
        ys = sum(message.startswith("y") for message in responses(i))
        assert sum(step.reward for step in told) == 1 + 0.25 * ys
    envs.close()
    assert gone("echo")
    deadline = time.monotonic() + 10
    while threading.active_count() > before + 4 and time.monotonic() < deadline:
        time.sleep(0.05)  # threads of connections that are closed
    assert threading.active_count() <= before + 4  # the server's own one


ASYNC_AGENTS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from functools import partial
from envs import make_env
from envs.pool.resilient import ResilientPool
from run import process
if sys.argv[1] == "raised":
    process.raise_file_limit()
make = partial(make_env, "agent:agent_programs:waits", timeout=20.0)
pool = ResilientPool(make, [[k] for k in range(64)])
try:
    pool.resume(None)
    print("faults", len(pool.faults), flush=True)
except Exception as error:
    print("Too many open files" in str(error), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(("limit", "result"), [("raised", "faults 0"), ("soft", "True")])
def test_async_agents_need_more_files_than_the_soft_limit(limit, result):
    # 64 agents: 5 files each are 320, and the limit is 200
    done = subprocess.run(
        [sys.executable, "-c", ASYNC_AGENTS, limit], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")}, timeout=100,
    )  # fmt: skip
    assert done.stdout.strip() == result, done.stderr[-2000:]


@pytest.mark.parametrize("home", [dict(workers=2), dict(threads=3)])
def test_workers_and_threads_make_the_same_steps(home, pool):
    make, seeds = partial(make_env, "agent:agent_programs:echo"), [[k] for k in range(5)]
    assert play_all(pool(make, seeds, **home)) == play_all(pool(make, seeds))


def test_with_a_thread_each_agents_wait_at_the_same_time(pool):
    """Each waits for all the others before it asks."""
    make = partial(make_env, "agent:agent_programs:meets", timeout=20)
    envs = pool(make, [[k] for k in range(8)], threads=8)
    assert texts(envs.reset()) == ["all are here"] * 8


def test_a_replay_leads_to_the_same_observation(pool):
    make = partial(make_env, "agent:agent_programs:cut")
    envs = pool(make, [training_seeds(0, range(1))[0]])
    envs.reset()
    envs.send(0, "one", True)
    envs.poll()
    envs.send(0, "two", False)
    [(_, step)] = envs.poll()
    state = envs.state_dict()
    assert state[0]["truncated"] == [True, False]
    again = pool(make, [training_seeds(0, range(1))[0]])
    [(_, steps)] = again.resume(state)
    # the program learned again that its first answer was cut off, and its second not
    assert steps[-1].observation == step.observation
    assert "['length', 'stop']" in step.observation.text
    assert not again.faults


def test_a_program_that_cannot_be_replayed_begins_its_next_episode(pool):
    make = partial(make_env, "agent:agent_programs:moody")
    envs = pool(make, [[10, 11, 12]])
    envs.reset()
    [same] = envs.state_dict()  # it has taken no turn: the episode itself may begin again
    assert same["episode"] == 0
    envs.send(0, "hello")
    envs.poll()
    state = envs.state_dict()
    again = pool(make, [[10, 11, 12]])
    [(first, steps)] = again.resume(state)
    assert steps == [] and again.faults == [] and again.position(0) == (11, 0)
    assert first.text.startswith("mood")
