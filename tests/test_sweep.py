"""Sweeps: the grid becomes runs, finished ones are skipped, and the table has t intervals."""

import json
import os
import shlex
import signal
import threading
import time

import pytest
import real_runs
from made_runs import EVALUATION, write_run

import sweep
from paper import runs

FILE = """seeds = [3, 4]
[flags]
env-name = "toy"
model = "org/m"
use-proper-time-limits = true
gradient-checkpointing = false
[grid]
first-token-weight = [1, "inf"]
template-kwargs = [{enable_thinking = false}]
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(FILE)
    return tmp_path / "small.toml"


def commands_of(capsys, *words) -> list[str]:
    assert sweep.main([*words, "--dry-run"]) == 0
    return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]


def test_the_grid_becomes_runs_ordered_by_seed(file, capsys):
    commands = [shlex.split(line) for line in commands_of(capsys, "small.toml")]
    common = ["--env-name", "toy", "--model", "org/m", "--use-proper-time-limits"]
    kwargs = json.dumps({"enable_thinking": False})
    expected = [
        ["python", "main.py", *common, "--first-token-weight", weight, "--template-kwargs", kwargs,
         "--seed", seed, "--run-dir"]
        for seed in ("3", "4") for weight in ("1.0", "inf")
    ]  # fmt: skip
    assert [command[:-1] for command in commands] == expected
    assert len({command[-1] for command in commands}) == 4
    assert all(command[-1].startswith("runs/small/first-token-weight=") for command in commands)
    one = commands_of(capsys, "small.toml", "--number", "3")  # of a job array
    assert [shlex.split(line) for line in one] == [commands[2]]


def test_finished_runs_are_skipped_and_interrupted_ones_resumed(file, capsys):
    _, planned = sweep.plan(file)
    for run, update in zip(planned[:2], (3, 0), strict=True):
        write_run(run.path, evals=[EVALUATION | {"update": update}], **run.flags)
    resumed, *new = commands_of(capsys, "small.toml")
    assert resumed == f"python main.py --resume {shlex.quote(f'runs/small/{planned[1].path.name}')}"
    assert len(new) == 2
    planned[2].path.mkdir()
    (planned[2].path / "lock").touch()  # killed before it wrote anything else
    assert commands_of(capsys, "small.toml") == [resumed, *new]
    file.write_text(FILE.replace('"toy"', '"babyai-goto"'))
    assert sweep.main(["small.toml"]) == 2
    assert "was made with env_name toy, not babyai-goto" in capsys.readouterr().err


def test_runs_with_prompts_of_a_file_go_on(file, capsys):
    words = {"toy": {"system": "Hello."}}
    (file.parent / "words.toml").write_text('[toy]\nsystem = "Hello."')
    file.write_text(FILE.replace("[grid]", 'prompts = "words.toml"\n[grid]'))
    _, planned = sweep.plan(file)
    for run in planned:  # a run records the words
        write_run(run.path, evals=[EVALUATION | {"update": 3}], **run.flags | {"prompts": words})
    assert commands_of(capsys, "small.toml") == []
    (file.parent / "words.toml").write_text('[toy]\nsystem = "Good-bye."')
    assert sweep.main(["small.toml"]) == 2
    assert "was made with prompts {'toy': {'system': 'Hello.'}}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("seeds = [3, 4]", "seeds = 3", "small.toml: seeds is a list of values, as in seeds = [1"),
        ("[grid]", "[grd]", "small.toml: unknown grd; it has flags, grid, runs, seeds"),
        ("[3, 4]", "[3, 3]", "small.toml: two runs would be called first-token-weight=1"),
        ("env-name", "seed = 1\nenv-name", "a sweep sets --seed itself; leave it out"),
        ("[grid]", "[grid", "small.toml: "),
        ("seeds", "runs = 3\nseeds", 'small.toml: runs is a directory, as in runs = "runs/mine"'),
        ("env-name", "eval-interval = 0\nenv-name", "--eval-interval must be from 1"),
        ("env-name", "env-nam", "main.py has no flag --env-nam"),
    ],
)
def test_a_mistake_is_one_line(old, new, line, file, capsys):
    file.write_text(FILE.replace(old, new, 1))
    assert sweep.main(["small.toml", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1


def test_runs_at_a_time_have_their_own_variables_and_logs(tmp_path, monkeypatch, capsys):
    program = (
        "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES']); sys.exit(int(sys.argv[1]))"
    )
    (tmp_path / "main.py").write_text(program)
    monkeypatch.setattr(runs, "PROJECT", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    commands = [
        (tmp_path / name, ["main.py", code]) for name, code in zip("abc", "030", strict=True)
    ]
    assert runs.perform_parallel(commands, sweep.environments(2)) == 3  # the others are made, too
    logs = [(tmp_path / f"{name}.log").read_text() for name in "abc"]
    assert logs[:2] == ["5\n", "7\n"] and logs[2] in ("5\n", "7\n")
    assert "# b: exit code 3, " in capsys.readouterr().out


CUT = """
[flags]
env-name = "toy"
model = "MODEL"
engine = "transformers"
n-env = 2
e-len = 2
minibatch = 4
num-updates = 8
response-limit = 6
w-epoch = 0
save-interval = 2
eval-interval = 9
eval-episodes = 2
"""


def test_a_sweep_that_is_cut_while_a_run_trains_goes_on(model_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.toml").write_text(CUT.replace("MODEL", str(model_dir)))
    run = tmp_path / "runs" / "cut" / "run-seed1"

    def start(path, words, variables):
        with open(runs.log_of(path), "a") as log:
            return real_runs.Forked([runs.PROJECT / words[0], *words[1:]], tmp_path, log)

    def stop():
        while not (run / "metrics.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)  # the sweep passes it on

    monkeypatch.setattr(runs, "start", start)
    threading.Thread(target=stop, daemon=True).start()
    assert sweep.main(["cut.toml"]) == 128 + signal.SIGTERM
    assert "1 of 1 runs are not finished" in capsys.readouterr().out
    assert sweep.main(["cut.toml"]) == 0
    output = capsys.readouterr().out
    assert "python main.py --resume runs/cut/run-seed1" in output and "not finished" not in output
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["update"] for row in rows] == list(range(1, 9))


def test_the_first_point_of_the_file_is_what_others_are_compared_with(file, capsys):
    """Its run with the first seed is missing, so another point's run comes first."""
    _, planned = sweep.plan(file)
    for run in planned[1:]:
        write_run(run.path, evals=[EVALUATION | {"update": 3}], **run.flags)
    sweep.write_page(file.parent / "runs" / "small", planned)
    rows = [line for line in capsys.readouterr().out.splitlines() if "| first-token" in line]
    assert [row.split(", ")[0] for row in rows] == [
        "| first-token-weight=1", "| first-token-weight=inf"
    ]  # fmt: skip
