"""A process of main.py: Ctrl-C while it starts, readers that leave, plain locales, its threads."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import real_runs
import torch
from real_runs import Forked, load_checkpoint

import main
from recipes import TINY
from run import process

ROOT = Path(__file__).resolve().parents[2]
MAIN = [sys.executable, str(ROOT / "main.py")]
TOY = """--env-name toy --engine transformers --n-env 2 --e-len 2 --minibatch 4 --w-epoch 0
--eval-interval 0 --response-limit 4 --prompt-limit 8192""".split()


def launch(command: list, **options) -> subprocess.Popen:
    env = os.environ | {"OMP_NUM_THREADS": "1"} | options.pop("env", {})
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return subprocess.Popen(command, env=env, **(pipes | options))


# ---- Ctrl-C -------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["run.process", "torch._utils"])
def test_an_interrupt_while_modules_are_imported_is_one_line(module, tmp_path):
    command = [sys.executable, "-X", "importtime", *MAIN[1:], *TOY]  # tells what it imports
    started = launch(command, cwd=tmp_path, text=True)
    for line in started.stderr:
        if line.split()[-1] == module:
            break
    started.send_signal(signal.SIGINT)
    output = [line for line in started.stderr if not line.startswith("import time:")]
    assert output == ["main.py: interrupted\n"]
    assert started.wait(timeout=60) == 130
    assert started.stdout.read() in ("", "loading libraries ...\n")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_that_the_shell_ignores_stays_ignored():
    code = "import signal, sys; sys.argv[0] = 'main.py'; signal.signal(2, signal.SIG_IGN)"
    code += "; import run.process; print(signal.getsignal(2) == signal.SIG_IGN)"
    assert launch([sys.executable, "-c", code], cwd=ROOT, text=True).communicate()[0] == "True\n"


# ---- readers that leave, and plain locales ------------------------------------------------------


def test_a_run_with_a_closed_output_pipe_is_saved_and_ends(tmp_path, model_dir):
    flags = f"{' '.join(TOY)} --model {model_dir} --num-updates 99999 --run-dir run"
    with TemporaryFile("w+") as errors:
        started = Forked([MAIN[1], *flags.split()], tmp_path, errors=errors, PYTHONPATH=str(ROOT))
        started.stdout.readline()
        started.stdout.close()
        assert started.wait() == 128 + signal.SIGHUP
        errors.seek(0)
        line = "SIGHUP: the run is saved and ends; Ctrl-C ends it at once"
        assert errors.read() == f"\n{line}\n"
    # The reader may have left before the first update.
    log = tmp_path / "run" / "metrics.jsonl"
    made = log.read_text().count("\n") if log.exists() else 0
    assert load_checkpoint(tmp_path / "run")["update"] == made


def test_help_with_a_closed_output_pipe(tmp_path):
    started = launch([*MAIN, "--help"], cwd=tmp_path)
    started.stdout.close()  # whether before or after it prints
    assert (started.stderr.read(), started.wait(timeout=120)) == (b"", 0)


# Where only ASCII can be printed, and files have no other encoding by default.
ASCII = dict(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONPATH=str(ROOT))
SPEAKING = """
import gymnasium
from gymnasium.spaces import Text

class Speaking(gymnasium.Env):
    observation_space = action_space = Text(100)
    actions = ("geh", "öffne")
    def reset(self, *, seed=None, options=None):
        return "Die Tür \N{ROBOT FACE}", {}
    def step(self, action):
        return "Die Tür", 0.0, True, False, {}

gymnasium.register("Speaking-v0", Speaking)
"""


def test_every_program_works_where_only_ascii_can_be_shown(tmp_path, model_dir):
    (tmp_path / "speaking.py").write_text(SPEAKING, encoding="utf-8")
    flags = f"{' '.join(TOY)} --model {model_dir} --num-updates 1 --eval-interval 1 --run-dir run"
    typed = f"{MAIN[1]} {flags} --env-name speaking:Speaking-v0 --eval-episodes 2"
    programs = [
        typed, f"{MAIN[1]} --resume run --eval-only --env-name speaking:Speaking-v0",
        "-m reports.viewer run",
        "-m reports.viewer run --env 0 --prompts", "-m reports.curves run --out curves",
        "-m reports.evaluations run", "-m paper.reproduce table1 --dry-run",
    ]  # fmt: skip
    output = {}
    for words in programs:
        ended = real_runs.run(words.split(), tmp_path, at_start=ASCII.items(), **ASCII)
        assert ended.returncode == 0 and "Traceback" not in ended.stderr, (words, ended.stderr)
        assert ended.stdout.isascii()
        output[words] = ended.stdout
    assert "Die T\\xfcr" in output[programs[3]]


def test_a_run_directory_that_the_locale_cannot_read_is_one_line(tmp_path):
    flags = [b"--run-dir", "\N{SNOWMAN}".encode()]
    ended = launch([*MAIN, *flags], cwd=tmp_path, env=ASCII | {"LC_ALL": "C"})
    _, err = ended.communicate()
    line = r"'\udce2\udc98\udc83' has characters that this locale cannot read; set PYTHONUTF8=1"
    assert err.decode() == f"main.py: error: argument --run-dir: {line}\n"
    assert ended.returncode == 2 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["-m paper.reproduce table3 --dry-run", "-m models.make --help"])
def test_other_programs_end_silently_with_a_closed_output_pipe(words, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)  # before the program starts, which may print all and end at once
    with open(writing, "w") as out, TemporaryFile("w+") as errors:
        started = Forked(words.split(), tmp_path, out, errors, PYTHONPATH=str(ROOT))
        assert (started.wait(), (errors.seek(0), errors.read())[1]) == (-signal.SIGPIPE, "")


# ---- threads ------------------------------------------------------------------------------------


@pytest.fixture
def threads(monkeypatch):
    """The calls of torch.set_num_threads, where nobody has chosen the number yet."""
    chosen = []
    monkeypatch.setenv(process.THREADS, "")  # so that it is put back in the end
    monkeypatch.delenv(process.THREADS)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    return chosen


def test_a_small_model_gets_one_thread(threads):
    process.choose_threads(str(TINY))
    assert threads == [1] and os.environ[process.THREADS] == "1"


@pytest.mark.parametrize("size", [10**8, 10**12, 0, None])
def test_other_models_keep_torchs_threads(size, threads, tmp_path):
    for name in ("a", "b"):  # half of it in each
        if size is not None:
            with open(tmp_path / f"{name}.safetensors", "wb") as file:
                file.truncate(size // 2)
    process.choose_threads(str(tmp_path))
    process.choose_threads("Qwen/Qwen2.5-3B-Instruct")
    process.choose_threads("\0")
    assert threads == [] and process.THREADS not in os.environ


def test_a_choice_of_threads_stays(threads, monkeypatch):
    monkeypatch.setenv(process.THREADS, "2")
    process.choose_threads(str(TINY))
    assert threads == [] and os.environ[process.THREADS] == "2"


def test_the_program_chooses_before_it_runs(threads, monkeypatch):
    monkeypatch.setattr(main, "main", lambda args: list(threads))
    assert main.program(["--env-name", "toy", "--model", str(TINY)]) == [1]
