"""What critics know in training: the plan, and the page of runs that are judged already."""

import json

from made_runs import EVALUATION, write_run

from paper.critics import TASKS, plan_critics, write_critics


def test_a_run_keeps_a_checkpoint_of_each_third(tmp_path):
    planned = plan_critics("embedded", tmp_path, None, {"eval_episodes": 8})
    assert [run.flags["env_name"] for run in planned] == [*TASKS] and len(TASKS) == 4
    for run in planned:
        flags = run.flags
        assert flags["num_updates"] == 3 * flags["save_interval"] and flags["eval_episodes"] == 8
    assert len(plan_critics("embedded", tmp_path, [1, 2], {})) == 8


def test_the_page_by_hand(tmp_path):
    goto, *others = plan_critics("embedded", tmp_path / "runs", None, {})
    end = goto.flags["num_updates"]
    write_run(goto.path, (), [EVALUATION | {"update": end, "eval/success": 0.75}], num_updates=end)
    # Returns 0, 2 and 4, 6: truths 1 and 5, each with a variance of 2, so a noise of 1. They differ
    # by 4 - 1 = 3. The critic is 1 too low everywhere, so its error has the noise's variance less:
    # 1 - (0 - 1) / 3 = 1.33. What is the same everywhere explains 1 - (4 - 1) / 3 = 0.
    states = [
        dict(seed=s, turn=0, length=1, returns=returns, expected={"critic": v, "mean": 0.0})
        for s, returns, v in ((1, [0, 2], 0.0), (3, [4, 6], 4.0))
    ]
    (goto.path / "critic.json").write_text(json.dumps({end: states}))
    page = tmp_path / "critic-embedded.md"
    write_critics(page, "small", [goto, *others])  # the others have not been made
    text = page.read_text()
    assert text.count("## ") == 1 and "success is 0.750" in text
    assert f"| {end} | 2 | 1.33 | 0.00 | 1.15 | -1.000 |" in text  # 4 / sqrt(4 x 3) = 1.15
    assert (tmp_path / "critic-embedded-babyai-goto-critic-seed1.png").stat().st_size > 1000
