"""Policies are tried where they were not trained: the plan, the page, by hand."""

import math
import re
from functools import partial

import pytest
from made_runs import EVALUATION, write_run

from paper.generalisation import plan_generalisation, write_generalisation

GAINS = {"babyai-pickup": (0.1, 0.2), "babyai-open": (0.02, 0.04), "babyai-putnext": (0.0, 0.02)}


def test_each_trained_model_plays_elsewhere(tmp_path):
    extra = {"model": "mine", "eval_episodes": 8}
    planned = plan_generalisation("embedded", tmp_path, [1, 2, 1], extra)
    # trainings, which evaluate the initial model on goto; then the initial model and each policy in
    # the six other environments
    assert len(planned) == 2 + 6 + 2 * 6
    assert all(run.flags["eval_episodes"] == 8 for run in planned)
    assert [run.flags["model"] for run in planned[:8]] == ["mine"] * 8
    models = [str(tmp_path / f"babyai-goto-seed{seed}" / "model") for seed in (1, 2)]
    assert [run.flags["model"] for run in planned[8:]] == [models[0]] * 6 + [models[1]] * 6
    assert len({run.path for run in planned}) == len(planned)
    # two processes share the work by seeds, and one of them has the initial models
    assert len(plan_generalisation("embedded", tmp_path, [2], {})) == 1 + 6


def test_the_page_by_hand(tmp_path):
    planned = plan_generalisation("embedded", tmp_path / "runs", [1, 2], {})
    for run in planned[:-1]:  # the last is still missing
        success, end = 0.5, run.flags.get("num_updates", 0)
        if run.flags["env_name"] in GAINS and "-on-" in run.row.name:
            success += GAINS[run.flags["env_name"]][run.seed - 1]
        evals = [EVALUATION | {"eval/episodes": 98, "eval/success": success, "update": end}]
        if end and run.seed == 1:
            evals.insert(0, evals[0] | {"update": 0, "eval/success": 0.4})
        settings = {"num_updates": end} if end else {"eval_only": True}
        write_run(run.path, (), evals, seed=run.seed, **settings)
    write_generalisation(tmp_path / "page.md", "small", planned)
    page = (tmp_path / "page.md").read_text()
    rows = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if "|" in line}

    def gain(env):
        *_, seeds, found, word, _ = rows[env].split("|")
        mean, low, high = re.fullmatch(r" ([+.0-9-]+) \[(.*), (.*)\] ", found).groups()
        return seeds.strip(), float(mean), (float(low), float(high)), word.strip()

    # Before: half of 98 episodes, and one success and one failure more are 50 of 100: the standard
    # error is .05. After: a mean of .65 with the standard error .1 / 2^.5 / 2^.5 = .05; with one
    # degree of freedom 12.706 x .05 = .635.
    assert "| 0.650 [0.015, 1.285] | 0.600 0.700 |" in rows["babyai-pickup"]
    # .0025 for the seeds, .0025 for the episodes: (.005 / .0025)^2 = 4 degrees of freedom
    half = 2.776 * math.sqrt(0.005)
    near = partial(pytest.approx, abs=0.01)
    wide = near((0.15 - half, 0.15 + half))
    assert gain("babyai-pickup") == ("0.600 0.700", 0.15, wide, "not decided")
    # alike in all seeds: the doubt over the episodes before is left
    flat = near((-0.098, 0.098))
    assert gain("babyai-goto-16x16") == ("0.500 0.500", 0, flat, "not decided")
    # the first run that was trained has evaluated the initial model: .4, an error of .04903
    assert gain("babyai-goto") == ("0.500 0.500", 0.1, near((0.004, 0.196)), "seen")
    assert rows["babyai-putnext"].endswith("| 0.500 | - | - |")  # one seed
    assert "Episodes: 98. Commits: aaaaaaa-dirty." in page
    assert "The margin is 0.05." in page
    assert page.endswith("Missing:\n\n- babyai-putnext, seed 2: not started\n")
