"""What a user's environment does wrong is one line with his file and line, also from workers."""

from functools import partial

import pytest
from own_files import RESET, attribute, location, marked, method, reset, step, work_in, write
from small_envs import Dice

from envs import make_env
from envs.errors import EnvError
from envs.games.toy import Toy
from envs.pool.serial import training_seeds

ENVS = """
import gymnasium
import numpy as np
from gymnasium.spaces import Text


class Good(gymnasium.Env):
    observation_space = action_space = Text(100)
    actions = ("push", "pull")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turns = 0
        return "A door.", {}

    def step(self, action):
        self.turns += 1
        return "A door.", np.float32(0.5), np.bool_(self.turns == 3), False, {}


gymnasium.register("Good-v0", Good)


class Outer(gymnasium.Wrapper):
    def step(self, action):  # here Wrapped
        return super().step(action)[0]


gymnasium.register("Wrapped-v0", lambda: Outer(Good()))
"""


def speaks(message: str) -> str:
    """An environment that reads responses by itself, and what its info says beside the texts."""
    answer = f"'A', dict(system='s', instruction='', kept='A', {message})"
    return attribute("speaks_messages = True") + "\n" + reset(answer)


RETURNS = "it must return (observation, reward, terminated, truncated, info)"
TEXT = "it must be a text that is not empty"
ANSWERS = {
    # what a class of this name defines, and what the line says after the environment's name
    "OnlyText": (reset("'A door.'"),
                 ".reset returned 'A door.'; it must return (observation, info)"),
    "NoReset": (reset("None"), ".reset returned None; it must return (observation, info)"),
    "NoInfo": (reset("'A door.', None"), ".reset returned info = None; it must be a dict"),
    "NumberText": (reset("3, {}"), f".reset returned the observation 3; {TEXT}"),
    "EmptyText": (reset("' ', {}"), f".reset returned the observation ' '; {TEXT}"),
    "KeptNumber": (reset("'A', {'kept': 3}"),
                   ".reset returned info['kept'] = 3; it must be a text"),
    "NoSeed": (method("def reset(self):", "return 'A', {}"),
               ".reset cannot be called: NoSeed.reset() got an unexpected keyword argument 'seed'"),
    "Four": (step("'A', 0.0, False, {}"), f".step returned 4 values; {RETURNS}"),
    "NoStep": (step("None"), f".step returned None; {RETURNS}"),
    "NoReward": (step("'A', None, False, False, {}"),
                 ".step returned the reward None; it must be a finite number"),
    "TextReward": (step("'A', '1', False, False, {}"),
                   ".step returned the reward '1'; it must be a finite number"),
    "NanReward": (step("'A', np.nan, False, False, {}"),
                  ".step returned the reward nan; it must be a finite number"),
    "OneTerminated": (step("'A', 0, 1, False, {}"),
                      ".step returned terminated = 1; it must be True or False"),
    "NoneTruncated": (step("'A', 0, False, None, {}"),
                      ".step returned truncated = None; it must be True or False"),
    "ListInfo": (step("'A', 0, False, False, []"), ".step returned info = []; it must be a dict"),
    "Bytes": (step("b'A', 0, False, False, {}"), f".step returned the observation b'A'; {TEXT}"),
    "Perhaps": (step("'A', 0, True, False, {'success': 'no'}"),
                ".step returned info['success'] = 'no'; it must be True or False"),
    "NoMetrics": (step("'A', 0, True, False, {'metrics': {'x': 'y'}}"),
                  ".step returned info['metrics'] = {'x': 'y'}; it must be a dict of numbers"),
    "Prompt": (method("def system_prompt(self):", "return 3"),
               ".system_prompt gave 3; it must be a text"),
    "BareMessages": (speaks("messages=['hi']"),
                     ".reset returned info['messages'] = ['hi']; it must be a list of dicts with"),
    "NoContent": (speaks("messages=[{'role': 'user'}]"),
                  ".reset returned info['messages'] = [{'role': 'user'}]; it must be a list of"),
    "TextReply": (speaks("reply='hi'"),
                  ".reset returned info['reply'] = 'hi'; it must be a dict with two texts, role"),
    "ListTemplate": (speaks("template=[]"),
                     ".reset returned info['template'] = []; it must be a dict"),
    "OneAction": (attribute("actions = 'push'"),
                  ".actions is 'push'; it must be a list or a tuple of texts"),
    "NoActions": (attribute("actions = ()"), ".actions is (); it must be a list or a tuple of"),
    "NumberActions": (attribute("actions = ('push', 3)"),
                      ".actions holds 3; an action must be a text that is not empty"),
    "AlikeActions": (attribute("actions = ('Push it', 'pull', 'push-it!')"),
                     ".actions holds 'Push it' and 'push-it!', which read alike: case and punctu"),
    "Default": (attribute("default_action = None"), ".default_action is None; it must be a text"),
}  # fmt: skip
RAISES = {
    # what a class of this name defines, and what the line says; {} is the seed of the episode
    "Constructor": (
        method("def __init__(self):", "self.name = {}['name']  # here"),
        "environment 'own_envs:Constructor-v0' cannot be made: KeyError: 'name'",
    ),
    "Wrong": (
        method("def __init__(self):", "self.name = 'name' + 3  # here"),
        "environment 'own_envs:Wrong-v0' cannot be made: TypeError: can only concatenate str",
    ),
    "Quits": (
        method("def __init__(self):", "raise SystemExit('enough')  # here"),
        "environment 'own_envs:Quits-v0' cannot be made: SystemExit: enough",
    ),
    "Spaces": (
        attribute("observation_space = None"),
        "environment 'own_envs:Spaces-v0' has a space None; observations and actions must both be",
    ),
    "ResetRaises": (
        method(RESET, "return np.zeros(3).reshape(2)  # here"),
        "ValueError('cannot reshape array of size 3 into shape (2,)')",
    ),
}
OWN = {"own_envs.py": ENVS + marked(ANSWERS | RAISES, "class {}(Good):")}
for name in [*ANSWERS, *RAISES]:
    OWN["own_envs.py"] += f"\n\ngymnasium.register('{name}-v0', {name})"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("own"), OWN)


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    work_in(folder, monkeypatch)


def failure(pool, make, workers: int) -> str:
    """The error of the first reset or of the first turn."""
    with pytest.raises((ValueError, EnvError)) as raised:
        envs = pool(make, training_seeds(0, range(1)), workers)
        envs.reset()
        envs.send(0, "ACTION: push")
        envs.poll()
    assert "\n" not in str(raised.value)
    return str(raised.value)


IN_WORKERS = ["Wrapped", "OnlyText", "Four", "NanReward", "AlikeActions", "ResetRaises", "Wrong"]


@pytest.mark.parametrize(
    ("name", "workers"),
    [(name, 0) for name in [*ANSWERS, *RAISES, "Wrapped"]] + [(name, 1) for name in IN_WORKERS],
)
def test_a_broken_environment_ends_the_run_at_once(name, workers, pool):
    message = failure(pool, partial(make_env, f"own_envs:{name}-v0"), workers)
    where = location("own_envs.py", name)
    if name in ANSWERS:
        assert message.startswith(f"{where}{name}-v0{ANSWERS[name][1]}"), message
    elif name == "Wrapped":
        assert message == f"{where}Wrapped-v0.step returned 'A door.'; {RETURNS}"
    elif name == "ResetRaises":
        seed = next(iter(training_seeds(0, range(1))[0]))
        at = f"environment 0 (own_envs:{name}-v0), seed {seed}, step 0: "
        assert message == f"{at}{where}{RAISES[name][1]}"
    else:
        assert message.startswith(f"{where}{RAISES[name][1]}"), message


def test_a_good_environment_passes(pool):
    # its reward and its flag are numpy's
    envs = pool(partial(make_env, "own_envs:Good-v0"), training_seeds(0, range(1)))
    envs.reset()
    for turn in range(3):
        envs.send(0, "ACTION: push")
        [(_, step)] = envs.poll()
        assert (step.reward, step.terminated) == (0.5, turn == 2)
    assert not envs.faults


@pytest.mark.parametrize("workers", [0, 1])
def test_after_a_good_turn_a_broken_contract_costs_only_the_episode(pool, workers):
    envs = pool(Dice, training_seeds(0, range(2)), workers)
    envs.reset()
    envs.send(0, "x")
    envs.poll()
    envs.send(1, "silent")
    [(_, step)] = envs.poll()
    message = "Dice.step returned the observation ''; it must be a text that is not empty"
    assert step.truncated and step.fault.endswith(f"step 1: {message}")
    [fault] = envs.faults
    assert fault["error"] == message and fault["traceback"].startswith("Traceback")


class Half(Toy):
    """A fork's own environment, which forgets what `_act` must return."""

    def _act(self, action):
        return self._text(0), 0.0


def test_a_broken_environment_of_the_project(pool):
    wanted = "it must return (observation text, reward, terminated, success)"
    assert failure(pool, Half, 0) == f"Half._act returned 2 values; {wanted}"
