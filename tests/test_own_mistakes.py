"""What a user's memory or estimator does wrong is one line with his file and line, and the program
says it in one line."""

import compileall
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from own_files import attribute, location, marked, method, work_in, write

import main
import memory
from envs.text_env import Observation
from ppo.advantages import make_estimator
from recipes import TINY

SMALL = f"""--model {TINY} --env-name toy --n-env 2 --e-len 2 --minibatch 4 --num-updates 1
--w-epoch 0 --response-limit 2 --eval-episodes 2 --eval-interval 0 --engine transformers
--run-dir run"""
OWN = {}
ROOT = Path(main.__file__).resolve().parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("own"), OWN)


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    work_in(folder, monkeypatch)
    yield
    shutil.rmtree("run", ignore_errors=True)


# ---- memories -------------------------------------------------------------------------------

MEMORIES = {
    # what a class of this name defines, and what the line says
    "NoLength": (attribute("def __init__(self): ..."), "NoLength must take (length): too many"),
    "Idle": (method("def update(self):", "pass"), "Idle.update must take (self, step): too many "),
    "NotThere": (attribute("messages = None"), "memory 'own_memories:NotThere' must be a class"),
    "Nothing": (method("def messages(self):", "pass"), "Nothing.messages returned None; it mus"),
    "Empty": (method("def messages(self):", "return []"), "Empty.messages returned []; it must"),
    "Texts": (method("def messages(self):", "return ['a']"), "Texts.messages returned ['a']; it"),
    "NoRole": (method("def messages(self):", "return [dict(content='a')]"),
               "NoRole.messages returned [{'content': 'a'}]; it must return dicts of two te"),
    "Number": (method("def messages(self):", "return [dict(role='user', content=3)]"),
               "Number.messages returned [{'role': 'user', 'content': 3}]; it must return dicts"),
}  # fmt: skip
IMPORT = "from memory.window import WindowMemory"
OWN["own_memories.py"] = IMPORT + marked(MEMORIES, "class {}(WindowMemory):")


@pytest.mark.parametrize("name", MEMORIES)
def test_a_broken_memory(name):
    with pytest.raises(ValueError) as raised:
        made = memory.make(f"own_memories:{name}", 1)
        made.reset(Observation("a", "b", "c", "d"))
        made.messages()
    message = str(raised.value)
    assert message.startswith(location("own_memories.py", name) + MEMORIES[name][1]), message


# ---- estimators -----------------------------------------------------------------------------

ESTIMATORS = {
    # what a function of this name returns, and what the line says
    "nothing": ("    pass", "returned NoneType, not advantages, returns: 2 x torch.FloatTensor (2"),
    "one": ("    return batch.values", "returned torch.FloatTensor (2, 3, 4), not advantages, re"),
    "three": ("    return (batch.values,) * 3", "returned torch.FloatTensor (2, 3, 4), torch.F"),
    "flat": ("    return batch.values, batch.values.sum(-1)",
             "returned torch.FloatTensor (2, 3, 4), torch.FloatTensor (2, 3), not advantages, ret"),
    "integers": ("    return batch.values.long(), batch.values",
                 "returned torch.LongTensor (2, 3, 4), torch.FloatTensor (2, 3, 4), not advantage"),
    "lists": ("    return batch.values.tolist(), []", "returned list, list, not advantages, retu"),
    "nan": ("    return batch.values / 0, batch.values",
            "returned numbers that are not finite (nan or inf)"),
}  # fmt: skip
OWN["own_estimators.py"] = marked(ESTIMATORS, "def {}(batch):")
OWN["own_estimators.py"] += "\n\ndef two(a, b):  # here two\n    pass\n"


def estimate(name: str, value: float = 0.0):
    settings = dict(gamma_step=1.0, lam_step=1.0, gamma_token=1.0, lam_token=1.0)
    estimator = make_estimator(SimpleNamespace(advantages=name, **settings))
    mask, ends = torch.ones(2, 3, 4, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.bool)
    zeros, values = torch.zeros(2, 3, 4), torch.full((2, 3, 4), value)
    return estimator(rewards=zeros, values=values, response_mask=mask, steps=[],
                     next_values=torch.zeros(2, 3), episode_ends=ends)  # fmt: skip


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_broken_estimator(name):
    with pytest.raises(ValueError) as raised:
        estimate(f"own_estimators:{name}")
    where = location("own_estimators.py", name)
    message = f"{where}estimator 'own_estimators:{name}' {ESTIMATORS[name][1]}"
    assert str(raised.value).startswith(message), raised.value


def test_an_estimator_with_other_arguments():
    with pytest.raises(ValueError) as raised:
        estimate("own_estimators:two")
    where = location("own_estimators.py", "two")
    assert str(raised.value) == f"{where}two must take (batch): missing a required argument: 'b'"


def test_an_estimator_is_not_to_blame_for_values_that_are_not_finite():
    for name in ("own_estimators:nan", "dual-gae"):
        advantages, _ = estimate(name, value=float("nan"))
        assert advantages.isnan().all()


# ---- the program ----------------------------------------------------------------------------

OWN["own_code.py"] = """
from memory.window import WindowMemory

class Breaks(WindowMemory):
    def __init__(self, length):
        super().__init__(length)
        self.length = {}["length"]  # here Breaks

class Forgets(WindowMemory):
    def update(self, step):
        raise KeyError("step")  # here Forgets

class Lists(WindowMemory):
    def messages(self):  # here Lists
        return super().messages() if not self.turns else [self.turns]

def divide(batch):
    return 1 / 0  # here divide

class Narrow:  # here Narrow
    def __init__(self, tokenizer):
        pass
"""
OWN["own_raising.py"] = "import os\n\nprint(os.getcwd)\nraise KeyError('mine')  # here raising\n"
OWN["own_leaving.py"] = "import sys\n\nsys.exit(3)  # here leaving\n"
OWN["own_torn.py"] = "import own_half\n"
OWN["own_half.py"] = "\n\ndef thing(:\n"
OWN["own_doors.py"] = """
import gymnasium
from gymnasium.spaces import Text

class OnlyText(gymnasium.Env):
    observation_space = action_space = Text(100)

    def reset(self, *, seed=None, options=None):  # here OnlyText
        return "A door."

class Four(OnlyText):
    def reset(self, *, seed=None, options=None):
        return "A door.", {}

    def step(self, action):  # here Four
        return "A door.", 0.0, False, {}

class Constructor(OnlyText):
    def __init__(self):
        self.name = {}["name"]  # here Constructor

for kind in (OnlyText, Four, Constructor):
    gymnasium.register(f"{kind.__name__}-v1", kind)
"""
STEPS = "(observation, reward, terminated, truncated, info)"
SAVED = "; saved; go on with: python main.py --resume run"
PROGRAM = [
    # typed, exit code, file and case of the place, and what follows it
    ("--env-name own_doors:OnlyText-v1", 2, ("own_doors.py", "OnlyText"),
     "OnlyText-v1.reset returned 'A door.'; it must return (observation, info)"),
    ("--env-name own_doors:Four-v1", 1, ("own_doors.py", "Four"),
     f"Four-v1.step returned 4 values; it must return {STEPS}{SAVED}"),
    ("--env-name own_doors:Four-v1 --env-workers 1", 1, ("own_doors.py", "Four"),
     f"Four-v1.step returned 4 values; it must return {STEPS}{SAVED}"),
    ("--env-name own_doors:Constructor-v1 --env-workers 1", 2, ("own_doors.py", "Constructor"),
     "environment 'own_doors:Constructor-v1' cannot be made: KeyError: 'name'"),
    ("--memory own_code:Breaks", 2, ("own_code.py", "Breaks"), "KeyError: 'length'"),
    ("--memory own_code:Forgets", 1, ("own_code.py", "Forgets"), f"KeyError: 'step'{SAVED}"),
    ("--memory own_code:Lists", 1, ("own_code.py", "Lists"), "Lists.messages returned [deque([["),
    ("--advantages own_code:divide", 2, ("own_code.py", "divide"),
     "ZeroDivisionError: division by zero"),
    ("--engine own_code:Narrow", 2, ("own_code.py", "Narrow"),
     "Narrow must take (tokenizer, ends, response_limit, temperature, model, prompt_limit, dtype"),
    ("--memory own_raising:Thing", 2, ("own_raising.py", "raising"),
     "memory 'own_raising:Thing' cannot be imported (KeyError: 'mine'); choices: window, "),
    ("--env-name own_leaving:Thing-v0", 2, ("own_leaving.py", "leaving"),
     "environment 'own_leaving:Thing-v0' cannot be imported (SystemExit: 3); the form is "),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "code", "where", "message"), PROGRAM)
def test_the_program_reports_it_in_one_line(flags, code, where, message, capfd):
    assert main.program([*SMALL.split(), *flags.split()]) == code
    err = capfd.readouterr().err
    assert err.startswith(f"main.py: error: {location(*where)}{message}"), err
    assert err.count("\n") == 1, err
    if code == 1 and "--env-name" in flags:  # the batch that broke off has its fault written
        (fault,) = map(json.loads, Path("run/faults.jsonl").read_text().splitlines())
        assert fault["update"] == 1 and "Traceback" in fault["traceback"]


def test_a_syntax_error_is_reported_with_its_file_and_line(capfd):
    assert main.program([*SMALL.split(), "--engine", "own_torn:Thing"]) == 2
    err = capfd.readouterr().err
    message = "(SyntaxError: invalid syntax (own_half.py, line 3)); choices: "
    assert err.startswith("main.py: error: own_torn.py:1: engine 'own_torn:Thing' cannot be impor")
    assert message in err and err.count("\n") == 1, err


def test_a_mistake_is_one_line_with_compiled_files_only(tmp_path):
    """No source line can be read there, so the class of an error alone says that it is a check."""
    rooms = ("common", "envs", "memory", "ppo", "reports", "run", "storage")
    for name in (*rooms, "main.py", "branch.py", "arguments.py", "recipes.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    assert compileall.compile_dir(tmp_path, legacy=True, quiet=1)
    for source in tmp_path.rglob("*.py"):
        source.unlink()
    typed = [sys.executable, "main.pyc", "--env-name", "toy", "--model", "./nothing"]
    ended = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("main.py: error: --model ./nothing: no such directory")
    assert ended.stderr.count("\n") == 1
