"""One policy for many tasks: the plan, and the page by hand."""

import math
from pathlib import Path

import pytest
from made_runs import EVALUATION, dry_run, write_run

import arguments
from envs.mixture import tasks_of, weak_tasks
from paper.many_tasks import (
    HELD_OUT,
    OTHERS,
    baba_table,
    babyai_table,
    plan_many_tasks,
    success,
    write_many_tasks,
)
from paper.rows import SCALES
from paper.runs import read_run
from paper.tables import BABA, BABYAI

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("scale", SCALES)
def test_the_commands_are_those_of_main(scale, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    commands = dry_run(capsys, "many-tasks", "--scale", scale, "--runs", str(tmp_path))
    parsed = [arguments.get_args(command) for command in commands]
    mixed = [args for args in parsed if "," in args.env_name]
    # the single ones, then four policies, one of them tried elsewhere
    assert len(parsed) - len(mixed) == 5 * (5 if scale == "embedded" else 3)
    assert len(mixed) == 5 * 3
    names = [[*tasks_of(args.env_name)] for args in mixed[:5]]
    assert names == [BABYAI, BABYAI, BABA, OTHERS, HELD_OUT]
    assert [len(weak_tasks(args.env_name)) for args in mixed[:5]] == [0, 5, 0, 0, 0]
    assert [args.eval_episodes for args in mixed[:5]] == [640, 640, 1280, 29 * 32, 11 * 32]
    assert mixed[4].eval_only and mixed[4].model == str(mixed[3].run_dir / "model")
    for args in mixed:
        if not args.eval_only:
            assert args.eval_interval == args.num_updates + (args.seed != 1)
            assert (args.lr > 1e-6) == (scale == "embedded")


def test_what_is_held_out():
    assert len(BABA) == 40 and len(HELD_OUT) == 11 and {*HELD_OUT} | {*OTHERS} == {*BABA}
    # both steps of the way that is held out, and each distractor, belong to other tasks
    assert {"baba-two_room-break_stop-make_win", "baba-two_room-goto_win"} <= {*OTHERS}
    assert {"baba-goto_win-distr_obj", "baba-goto_win-distr_rule"} <= {*OTHERS}


def test_the_page_by_hand(tmp_path):
    planned = plan_many_tasks("embedded", tmp_path / "runs", [1, 2], {})
    for run in planned[:-1]:  # the last is still missing
        end, envs = run.flags.get("num_updates", 0), [*tasks_of(run.flags["env_name"])]
        success = {"babyai-five": 0.6, "babyai-five-weak": 0.9}.get(run.row.name, 0.5)
        success += 0.1 * (run.seed - 1) * (run.row.name == "babyai-five")
        figures = {f"eval/success/{env}": success for env in envs} if len(envs) > 1 else {}
        evals = [EVALUATION | figures | {"eval/success": success, "update": end}]
        if end and run.seed == 1 and figures:
            evals.insert(0, evals[0] | dict.fromkeys(figures, 0.25) | {"update": 0})
        metrics = [{"update": end, "turns": 1000}] if end else ()
        settings = {"num_updates": end} if end else {"eval_only": True}
        write_run(run.path, metrics, evals, seed=run.seed, **settings)
    write_many_tasks(tmp_path / "page.md", "small", planned)
    page = (tmp_path / "page.md").read_text()
    # .6 and .7: a standard error of .05, and 12.706 x .05 = .635 with one degree of freedom
    one = "0.650 [0.015, 1.285]"
    row = f"| babyai-goto | 0.250 | 0.500 [0.500, 0.500] | {one} | 0.900 [0.900, 0.900] |"
    assert f"{row} +0.150 [-0.485, +0.785] | +0.250 [-0.385, +0.885] |" in page
    assert "| all | 0.250 | 0.500 [0.500, 0.500] |" in page
    assert "| single policies, together | 5,000 | 0.0 |" in page
    assert "| one policy | 1,000 | 0.0 |" in page
    assert "| new |  | 0.250 | 0.500 [0.500, 0.500] | 0.500 |" in page  # of seed 1 alone
    assert "| baba-make_win-distr_obj_rule | new | 0.250 | 0.500 [0.500, 0.500] | 0.500 |" in page
    assert page.endswith("Missing:\n\n- the same, tasks not trained on, seed 2: not started\n")


def test_tasks_count_alike(tmp_path):
    # two seeds of each single policy: .2 and .4 in goto, .5 in the others
    singles = {env: (0.2, 0.4) if env == "babyai-goto" else (0.5, 0.5) for env in BABYAI}
    found = {
        env: [
            read_run(write_run(tmp_path / f"{env}{k}", (), [EVALUATION | {"eval/success": end,
                     "update": 3}]))
            for k, end in enumerate(ends)
        ]
        for env, ends in singles.items()
    }  # fmt: skip
    last = babyai_table(found).splitlines()[-1]
    # (.3 + 4 x .5) / 5, with a standard error of .1 / 5 and one degree of freedom
    half = 12.706 * 0.1 / 5
    assert math.isclose(0.46 - half, 0.206, abs_tol=5e-4)
    assert last.startswith("| all | - | 0.460 [0.206, 0.714] | - | - | - | - |")


def test_the_parts_of_a_policy_are_those_of_one_seed(tmp_path):
    # seed 1 was not tried on new tasks; seed 2 has .8 on 29 tasks and .4 on 11
    def tried(name: str, envs: list[str], seed: int, success: float):
        figures = {f"eval/success/{env}": success for env in envs}
        end = EVALUATION | figures | {"update": 3}
        return read_run(write_run(tmp_path / f"{name}{seed}", (), [end], seed=seed))

    found = {
        "baba-without": [tried("old", OTHERS, 1, 0.2), tried("old", OTHERS, 2, 0.8)],
        "baba-without-on-others": [tried("new", HELD_OUT, 2, 0.4)],
    }
    table = baba_table(found)
    assert math.isclose((29 * 0.8 + 11 * 0.4) / 40, 0.69)
    assert "| all |  | - | - | 0.690 |" in table and "| new |  | - | - | 0.400 |" in table
    tried("seven", OTHERS[:7], 3, 0.5)
    assert math.isnan(success([read_run(tmp_path / "seven3")], OTHERS)[3])
