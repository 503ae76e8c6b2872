"""Environments are brought back after a resume; those that fail, hang or die lose an episode."""

import json
import os
import random
import signal
import time
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import small_envs
from small_envs import Dice, Moody, Picky

from envs import family_class, make_env
from envs.errors import EnvError
from envs.pool import faults
from envs.pool import resilient as pool_module
from envs.pool.cursor import digest
from envs.pool.groups import group_seeds
from envs.pool.serial import EpisodeSeeds, training_seeds

BOTH = pytest.mark.parametrize("workers", [0, 2])
N = 4


def seeds(n_env=N):
    return training_seeds(0, range(n_env))


def turn(vec_env, sent: dict[int, str], hanging: int | None = None) -> dict:
    """One turn of some environments. hanging: the number of a worker whose time is over at once"""
    for i, text in sent.items():
        vec_env.send(i, text)
    if hanging is not None:
        time.sleep(0.2)  # until it hangs
        vec_env.executor.workers[hanging].since -= vec_env.executor.workers[hanging].timeout
    steps = {}
    while len(steps) < len(sent):
        steps |= dict(vec_env.poll())
    assert vec_env.poll() == []
    return steps


def places(vec_env) -> list[tuple]:
    """Episode and responses of each environment."""
    return [(was["episode"], was["responses"]) for was in vec_env.state_dict()]


@pytest.fixture
def no_rest(monkeypatch):
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 0.0)


# ---- brought back -------------------------------------------------------------------------------

NAMES = {
    "babyai-goto": "babyai",
    "babyai-pick-up-seq-go-to": "babyai",
    "baba-make_win-distr_obj": "babaisai",
    "crafter": "crafter",
    "toy": "toy",
}


@BOTH
@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_resumed_goes_on_as_if_it_had_not_ended(pool, name, workers):
    words = family_class(NAMES[name]).actions
    draw = random.Random(0)
    turns = [{i: f"ACTION: {draw.choice(words)}" for i in range(2)} for _ in range(11)]
    make = partial(make_env, name, max_episode_steps=5)
    whole = pool(make, seeds(2), workers)
    firsts = whole.reset()
    since = [[], []]  # the Steps of the episodes under way
    for sent in turns[:7]:
        for i, step in turn(whole, sent).items():
            since[i] = [] if step.done else [*since[i], step]
            firsts[i] = step.first or firsts[i]
    state = json.loads(json.dumps(whole.state_dict()))
    assert {record["episode"] for record in state} != {0}
    assert any(record["responses"] for record in state)

    resumed = pool(make, seeds(2), workers)
    assert resumed.resume(state) == list(zip(firsts, since, strict=True))
    assert resumed.state_dict() == state
    for sent in turns[7:]:
        assert turn(resumed, sent) == turn(whole, sent)
    assert resumed.state_dict() == whole.state_dict()
    assert not resumed.faults


@BOTH
def test_an_evaluation_is_resumed(pool, workers):
    # environment 0 plays the seeds 1 and 7, 1 and 2 play one each; then 1 has none left
    deal = [[1, 7], [3], [5]]
    whole = pool(Dice, deal, workers)
    whole.reset()
    turn(whole, {0: "end", 1: "end", 2: "a"})
    state = whole.state_dict()
    resumed = pool(Dice, deal, workers)
    [(first, steps), nothing, (_, after)] = resumed.resume(state)
    assert first.text.startswith("seed 7 turn 0") and steps == []
    assert nothing == (None, [])
    assert [step.response for step in after] == ["a"]
    assert resumed.state_dict() == state
    assert turn(resumed, {0: "x", 2: "y"}) == turn(whole, {0: "x", 2: "y"})


def test_each_replayed_turn_gets_the_full_time_limit(pool):
    # two naps of 2.5 s are longer than the 4 s for one answer
    vec_env = pool(Dice, seeds(1), 1, timeout=4)
    [(_, steps)] = vec_env.resume([{"episode": 0, "responses": ["nap", "nap"]}])
    assert [step.number for step in steps] == [1, 2] and not vec_env.faults


@BOTH
def test_observations_returned_by_resume_do_not_change_later(pool, workers):
    vec_env = pool(Dice, seeds(1), workers)
    [(_, steps)] = vec_env.resume([{"episode": 1, "responses": ["a"]}])
    assert turn(vec_env, {0: "b"})[0].number == 2
    assert [step.response for step in steps] == ["a"]


@BOTH
def test_a_resumed_pool_without_an_episode_left_is_an_error(pool, workers):
    # Moody ignores its seed, so its only episode cannot be brought back
    message = r"^environment 0 \(Moody\), seed 5, step 2: .*not deterministic"
    with pytest.raises(EnvError, match=message):
        pool(Moody, [[5]], workers).resume([{"episode": 0, "responses": ["a", "end"]}])


def test_a_state_leaves_out_unfinished_turns(pool):
    vec_env = pool(Dice, seeds())
    vec_env.reset()
    vec_env.send(0, "x")
    with pytest.raises(AssertionError, match="busy"):
        vec_env.state_dict()


@BOTH
def test_an_environment_that_cannot_be_brought_back_begins_its_next_episode(pool, workers):
    # Moody ignores its seed; environment 0 is asked for its first observation only
    vec_env = pool(Moody, seeds(2), workers)
    state = [{"episode": 2, "responses": []}, {"episode": 2, "responses": ["a", "end", "b"]}]
    [(_, none), (first, steps)] = vec_env.resume(state)
    assert none == steps == []
    assert places(vec_env) == [(2, []), (3, [])]
    [fault] = vec_env.faults
    third = list(islice(seeds(2)[1], 3))[2]
    assert (fault["env"], fault["seed"], fault["step"]) == (1, third, 3)
    assert "not deterministic" in fault["error"]
    assert turn(vec_env, {1: "x"})[1].observation.text.startswith("mood")


# ---- faults -------------------------------------------------------------------------------------


def line_of(words: str) -> str:
    """The last line of all that led to an error: small_envs is not a user's file."""
    lines = Path(small_envs.__file__).read_text().splitlines()
    return f"{small_envs.__file__}:{[words in line for line in lines].index(True) + 1}: "


RAISES, LEAVES = line_of('raise KeyError("lost")'), line_of('sys.exit("enough")')
CANCELS = line_of("raise asyncio.CancelledError")


@BOTH
@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("raise", f"{RAISES}KeyError('lost')"),
        ("silent", "Dice.step returned the observation ''; it must be a text that is not empty"),
        ("number", "Dice.step returned the observation 3; it must be a text that is not empty"),
        ("nan", "Dice.step returned the reward nan; it must be a finite number"),
        ("leave", f"{LEAVES}SystemExit('enough')"),
        ("cancel", f"{CANCELS}CancelledError()"),
    ],
)
def test_an_environment_that_fails_loses_its_episode(pool, workers, word, error):
    vec_env = pool(Dice, seeds(), workers)
    vec_env.reset()
    before = turn(vec_env, {i: "ACTION: x" for i in range(N)})
    step = turn(vec_env, {0: "y", 1: word})[1]
    now, then = islice(seeds()[1], 2)
    line = f"environment 1 (Dice), seed {now}, step 2: {error}"
    assert step.fault == line
    assert (step.terminated, step.truncated, step.success, step.reward) == (False, True, False, 0.0)
    assert (step.response, step.kept_response, step.valid, step.action_at) == (
        word,
        word,
        True,
        len(word),
    )
    assert step.observation == before[1].observation
    assert step.first.text.startswith(f"seed {then} turn 0")
    # what it takes to play the episode again
    assert (step.episode, step.seed, step.number) == (0, now, 2)
    [fault] = vec_env.faults
    trace = fault.pop("traceback")
    assert fault == dict(env=1, name="Dice", seed=now, step=2, error=error)
    assert trace.startswith("Traceback")
    # the others go on, and so does this one
    after = turn(vec_env, {i: "z" for i in range(N)})
    assert not any(step.fault for step in after.values())
    assert after[1].observation.text.startswith(f"seed {then} turn 1")
    assert after[0].truncated  # its third turn
    assert [after[i].number for i in range(N)] == [3, 1, 2, 2]
    assert (after[1].episode, after[1].seed) == (1, then)


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("exit", "its worker died with exit code 7"),
        ("sleep", "no answer within 300 s, its worker was killed"),
        ("spin", "no answer within 300 s, its worker was killed"),
    ],
)
def test_a_worker_that_dies_or_hangs_costs_one_episode(pool, word, error):
    # 0, 2 and 4 live in one worker. 2 kills it while 4 waits for its answer and 0 is idle
    vec_env, calm = pool(Dice, seeds(5), 2), pool(Dice, seeds(5))
    assert vec_env.reset() == calm.reset()
    first = {0: "a", 1: "a", 2: "a", 4: "a"}
    assert turn(vec_env, first) == turn(calm, first)
    steps = turn(vec_env, {1: "b", 2: word, 4: "b"}, hanging=None if word == "exit" else 0)
    expected = turn(calm, {1: "b", 4: "b"})
    assert {i: steps[i] for i in (1, 4)} == expected
    now, then = islice(seeds(5)[2], 2)
    assert steps[2].truncated and steps[2].first.text.startswith(f"seed {then} turn 0")
    [fault] = vec_env.faults
    assert fault == dict(env=2, name="Dice", seed=now, step=2, error=error, traceback="")
    last = {0: "c", 1: "c", 3: "c", 4: "c"}
    assert turn(vec_env, last) == turn(calm, last)


def test_a_worker_that_dies_between_two_turns_costs_none(pool):
    vec_env, calm = pool(Dice, seeds(), 2), pool(Dice, seeds())
    assert vec_env.reset() == calm.reset()
    sent = {i: "x" for i in range(N)}
    for k in range(3):
        assert turn(vec_env, sent) == turn(calm, sent)
        os.kill(vec_env.executor.workers[k % 2].process.pid, signal.SIGKILL)
        vec_env.executor.workers[k % 2].process.join()
        if k == 1:
            assert vec_env.poll(wait=False) == []  # it is noticed here, or with the next send
    last = {0: "end"}  # its worker was the last to die
    assert turn(vec_env, last) == turn(calm, last)
    assert {fault["env"] for fault in vec_env.faults} == {None}
    assert vec_env.faults[0]["error"] == "its worker died with exit code -9"


def test_an_environment_that_does_not_come_back_loses_its_episode(pool):
    # 1 takes the worker down; 0 has forgotten what it did, as its next turn shows
    vec_env = pool(Moody, seeds(2), 1)
    vec_env.reset()
    turn(vec_env, {0: "a"})
    assert turn(vec_env, {1: "exit"})[1].fault
    step = turn(vec_env, {0: "b"})[0]
    assert step.truncated and "not deterministic" in step.fault
    assert [fault["env"] for fault in vec_env.faults] == [1, 0]


@BOTH
def test_an_episode_that_cannot_begin_is_left_out(pool, workers, no_rest):
    # environment 0 plays the seeds 2, 3, 4, 5 and 1 plays 6 and 3; the episode 3 cannot begin.
    # Nothing follows on the last one: it is tried 8 times
    vec_env = pool(partial(Picky, 3), [[2, 3, 4, 5], [6, 3]], workers)
    vec_env.reset()
    steps = turn(vec_env, {0: "end", 1: "end"})
    assert steps[0].terminated and not steps[0].fault
    assert steps[0].first.text.startswith("seed 4 turn 0")
    assert steps[1].terminated and steps[1].first is None
    lost = [(fault["env"], fault["seed"], fault["step"]) for fault in vec_env.faults]
    assert sorted(lost) == [(0, 3, 0)] + [(1, 3, 0)] * 8
    assert places(vec_env) == [(2, []), (2, [])]


# ---- too much -----------------------------------------------------------------------------------


@BOTH
def test_an_error_if_no_environment_can_begin(pool, workers):
    with pytest.raises(EnvError, match=r"^environment \d \(.*seed 2, step 0: \S+: KeyError\(2\)$"):
        pool(partial(Picky, 2), [[2, 4], [2, 4]], workers).reset()


@BOTH
def test_twelve_failed_resets_in_a_row_are_an_error(pool, workers, no_rest):
    # one of them in the reset, eleven in the first turn
    vec_env = pool(partial(Picky, 4), [[*range(2, 60, 2)], [1]], workers, max_faults=1)
    vec_env.reset()
    turn(vec_env, {1: "x"})
    for k in range(10):
        assert turn(vec_env, {0: "raise"})[0].first.text.startswith(f"seed {6 + 2 * k}")
    with pytest.raises(EnvError) as raised:
        turn(vec_env, {0: "raise"})
    assert str(raised.value).startswith(
        "12 faults in a row, without a turn among them: "
        f"environment 0 (Picky), seed 24, step 1: {RAISES}KeyErr"
    )
    assert "\n" not in str(raised.value)


@BOTH
def test_where_no_turn_has_worked_three_faults_in_a_row_are_an_error(pool, workers, no_rest):
    # probably the user's code is wrong: nobody wants to wait for minutes to read about it
    vec_env = pool(partial(Picky, 4), [[2, 4, 6, 8], [1]], workers)
    vec_env.reset()
    assert turn(vec_env, {0: "raise"})[0].first.text.startswith("seed 6")
    with pytest.raises(EnvError, match=r"^3 faults in a row, .* seed 6, step 1: .*KeyErr"):
        turn(vec_env, {0: "raise"})


@BOTH
def test_too_large_a_share_of_faults_is_an_error(pool, workers):
    # 3 of 20 is more than .1. Only 7 episodes have begun, 3 of them after a fault: 7 count as 20.
    # A fault counts when the environment has worked again
    vec_env = pool(Dice, seeds(), workers)
    vec_env.reset()
    for i in range(3):
        turn(vec_env, {i: "x"})
        assert turn(vec_env, {i: "raise"})[i].fault
    assert not any(step.fault for step in turn(vec_env, {0: "x", 1: "x"}).values())
    with pytest.raises(EnvError, match=r"^3 of 7 episodes failed: environment 2 \(Dice\), seed"):
        turn(vec_env, {2: "x"})
    assert len(vec_env.faults) == 3


def test_a_fault_share_of_0_allows_no_fault(pool):
    vec_env = pool(Dice, seeds(), max_faults=0)
    vec_env.reset()
    turn(vec_env, {2: "raise"})
    with pytest.raises(EnvError, match=r"^1 of 5 episodes failed"):
        turn(vec_env, {2: "x"})


def test_the_fault_share_is_of_the_last_200_episodes(pool):
    # 20 of 200 are allowed: one more is too much, whatever came before them
    rate = faults.FaultRate(0.1)
    for _ in range(20):
        rate.begun += 10
        rate.count("early")
    for _ in range(20):
        rate.begun += 10
        rate.count("late")
    rate.begun += 9  # the oldest of the 20 is still among them
    with pytest.raises(EnvError, match="^21 of the last 200 episodes failed: one more"):
        rate.count("one more")


def test_pauses_before_resets_grow_to_a_minute():
    assert [faults.pause(k) for k in range(1, 12)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


class Service(Dice):
    """Works while a file exists. Also its first turn, and making it, need the service."""

    def __init__(self, folder: str):
        super().__init__(folder)
        self.served()

    def reset(self, *, seed=None, options=None):
        self.served()
        return super().reset(seed=seed)

    def step(self, response):
        self.served()
        return super().step(response)

    def served(self):
        if not (self.folder / "up").exists():
            raise ConnectionError("no service")


@pytest.fixture
def service(tmp_path):
    (tmp_path / "up").touch()
    return tmp_path / "up"


PLACES = pytest.mark.parametrize("options", [{}, {"workers": 2}, {"threads": 2}], ids=str)


@PLACES
def test_an_outage_does_not_end_the_run(pool, options, service, monkeypatch):
    # 40 environments fail at once, and 6 times each: more than a tenth of the 40 episodes begun
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 0.02)
    vec_env = pool(partial(Service, str(service.parent)), seeds(40), **options)
    vec_env.reset()
    turn(vec_env, {i: "x" for i in range(40)})
    service.unlink()
    for i in range(40):
        vec_env.send(i, "y")
    while not all(place.failures >= 6 for place in vec_env.cursors):
        assert vec_env.poll(wait=False) == []  # a Step waits until the next episode has begun
    service.touch()
    steps = {}
    while len(steps) < 40:
        steps |= dict(vec_env.poll())
    assert all(step.fault and step.first for step in steps.values())
    assert not any(step.fault for step in turn(vec_env, {i: "z" for i in range(40)}).values())


@PLACES
def test_a_pausing_environment_does_not_delay_the_others(pool, options, monkeypatch):
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 1000.0)
    vec_env = pool(Dice, seeds(2), **options)
    vec_env.reset()
    turn(vec_env, {0: "raise"})
    vec_env.send(0, "raise")  # its second fault in a row: it rests for 1000 s
    while not vec_env.resting:
        assert vec_env.poll(wait=False) == []
    for _ in range(3):
        assert turn_of(vec_env, 1).number
    monkeypatch.setattr(pool_module, "POLL_SECONDS", 0.01)  # not before: a turn may take longer
    assert vec_env.poll() == []  # it looks up, so that a signal is not obeyed 1000 s too late
    with pytest.raises(AssertionError, match="environment 0 is still busy"):
        vec_env.send(0, "x")


def turn_of(vec_env, i: int):
    vec_env.send(i, "x")
    [(j, step)] = vec_env.poll()
    assert j == i
    return step


@PLACES
def test_an_evaluation_begins_in_an_outage(pool, options, service, monkeypatch):
    # such environments have worked before, so that this is no mistake of the user's
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 0.02)
    service.unlink()
    vec_env = pool(
        partial(Service, str(service.parent)), [[1], [3]], timeout=60, proven=True, **options
    )
    began = vec_env.executor.ask

    def ask(i, method, *args):
        if len(vec_env.faults) >= 4:
            service.touch()
        began(i, method, *args)

    monkeypatch.setattr(vec_env.executor, "ask", ask)
    assert [first.text[:6] for first in vec_env.reset()] == ["seed 1", "seed 3"]
    assert any("no service" in fault["error"] for fault in vec_env.faults)


@PLACES
def test_an_evaluation_loses_no_episode_in_an_outage(pool, options, service, monkeypatch):
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 0.05)
    queue = iter([1, 3, 5, 7])
    make = partial(Service, str(service.parent))
    vec_env = pool(make, [queue, queue], proven=True, **options)
    firsts = vec_env.reset()
    assert [first.text[:6] for first in firsts] == ["seed 1", "seed 3"]
    service.unlink()
    vec_env.send(0, "y")
    while vec_env.cursors[0].failures < 5:
        assert vec_env.poll(wait=False) == []
    service.touch()
    [(_, step)] = vec_env.poll()
    assert step.fault and step.first.text.startswith("seed 5")


def test_a_restart_that_fails_is_tried_again(pool, service, monkeypatch):
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 0.02)
    vec_env = pool(partial(Service, str(service.parent)), seeds(2), 1)
    vec_env.reset()
    turn(vec_env, {0: "a", 1: "a"})
    [worker] = vec_env.executor.workers
    service.unlink()
    worker.process.kill()
    worker.process.join()
    vec_env.send(0, "x")
    vec_env.send(1, "x")
    while vec_env.cursors[0].failures < 3:
        assert vec_env.poll(wait=False) == []
    service.touch()
    steps = dict(vec_env.poll())
    while len(steps) < 2:
        steps |= dict(vec_env.poll())
    assert all("no service" in step.fault and step.first for step in steps.values())
    errors = [fault["error"] for fault in vec_env.faults]
    assert errors[0] == "its worker died with exit code -9"
    assert all(error.endswith(": ConnectionError('no service')") for error in errors[1:])
    assert not any(step.fault for step in turn(vec_env, {0: "y", 1: "y"}).values())


# ---- what a resume says -------------------------------------------------------------------------


def test_an_environment_that_changed_is_noticed(pool):
    whole = pool(Dice, seeds(3))
    whole.reset()
    turn(whole, {0: "a", 1: "a"})
    state = whole.state_dict()
    assert state[0]["shown"] == digest(whole.cursors[0].observation.text) != state[1]["shown"]
    state[0]["shown"] = state[2]["shown"] = digest("as it was before the change")
    del state[1]["shown"]  # an older state
    resumed = pool(Dice, seeds(3), first=10)
    past = resumed.resume(state)
    assert [len(steps) for _, steps in past] == [0, 1, 0]
    assert places(resumed) == [(1, []), (0, ["a"]), (1, [])]
    lost = [(fault["env"], fault["step"], fault["error"]) for fault in resumed.faults]
    changed = "the environment now shows something else than when it was saved"
    assert sorted(lost) == [(10, 1, changed), (12, 0, changed)]
    turn(resumed, {i: "b" for i in range(3)})  # after the place where it was checked: nothing


def test_failed_replays_do_not_count_as_faults(pool):
    # Moody cannot be brought back anywhere: 30 faults of 30, and none of them is in the rate
    vec_env = pool(Moody, seeds(30))
    vec_env.resume([{"episode": 2, "responses": ["a", "b"], "shown": "0"}] * 30)
    assert len(vec_env.faults) == 30
    for _ in range(2):
        assert not any(step.fault for step in turn(vec_env, {i: "x" for i in range(30)}).values())


@PLACES
def test_a_long_replay_shows_its_progress(pool, options, monkeypatch, capsys):
    monkeypatch.setattr(pool_module, "PROGRESS_SECONDS", 0.0)
    vec_env = pool(Dice, seeds(2), **options)
    vec_env.resume([{"episode": 1, "responses": ["a", "b"]}] * 2)
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "replaying: 0 of 2 environments are back"
    pool(Dice, seeds(2), **options).resume(None)
    pool(Dice, seeds(2)).resume([{"episode": 1, "responses": []}] * 2)
    assert capsys.readouterr().out == ""  # nothing is played again


@PLACES
def test_faults_count_environments_over_all_ranks(pool, options):
    vec_env = pool(Dice, seeds(2), first=6, **options)
    vec_env.reset()
    step = turn(vec_env, {1: "raise"})[1]
    assert step.fault.startswith("environment 7 (Dice), seed")
    assert vec_env.faults[0]["env"] == 7


def test_a_worker_that_does_not_start_is_an_error(pool):
    vec_env = pool(partial(os._exit, 5), seeds(), 2)
    message = r"^environment . \(_exit\), seed \d+, step 0: its worker died with exit code 5$"
    with pytest.raises(EnvError, match=message):
        vec_env.reset()


def test_a_hang_is_noticed_without_waiting(pool):
    vec_env = pool(Dice, seeds(), 2, timeout=0.5)  # a reset has more time
    vec_env.reset()
    vec_env.send(0, "sleep")
    while not (answered := vec_env.poll(wait=False)):
        time.sleep(0.1)
    assert answered[0][1].fault


def test_a_hang_in_c_code_does_not_block_sending(pool):
    # 40 x 20 kB are more than a pipe holds, and nothing empties it
    vec_env, calm = pool(Dice, seeds(41), 1), pool(Dice, seeds(41))
    assert vec_env.reset() == calm.reset()
    sent = {i: "x" * 20_000 for i in range(1, 41)}
    vec_env.send(0, "spin")
    vec_env.executor.workers[0].since -= (
        vec_env.executor.workers[0].timeout - 0.5
    )  # s, which are left
    for i, text in sent.items():
        vec_env.send(i, text)
    steps = {}
    while len(steps) < 41:
        steps |= dict(vec_env.poll())
    assert steps.pop(0).fault
    assert steps == turn(calm, sent)
    assert len(vec_env.faults) == 1


@pytest.mark.parametrize("turns", [0, 1])
def test_an_episode_that_replaced_one_of_its_group_is_resumed(pool, no_rest, turns):
    first, instead = EpisodeSeeds(1, 0).draw(0), EpisodeSeeds(1, 0).draw(0, 1)
    make = partial(Picky, first)
    begun = pool(make, group_seeds(1, range(4), 2), proven=True)
    begun.reset()
    # the group of environments 0 and 1 has the broken seed
    seeds_begun = [begun.position(i)[0] for i in range(4)]
    assert seeds_begun[:2] == [instead] * 2 and first not in seeds_begun
    for _ in range(turns):
        turn(begun, dict.fromkeys(range(4), "ACTION: roll"))
    state = json.loads(json.dumps(begun.state_dict()))
    resumed = pool(make, group_seeds(1, range(4), 2), proven=True)
    resumed.resume(state)
    assert [resumed.position(i) for i in range(4)] == [(seed, turns) for seed in seeds_begun]
    assert resumed.faults == [] and resumed.state_dict() == state
