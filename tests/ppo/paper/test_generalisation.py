"""Policies are tried where they were not trained: the plan, the page, by hand."""

from made_runs import EVALUATION, write_run

from ppo.paper.generalisation import plan_generalisation, write_generalisation

GAINS = {"babyai-pickup": (0.1, 0.2), "babyai-open": (0.02, 0.04), "babyai-putnext": (0.0, 0.02)}


def test_each_trained_model_plays_elsewhere(tmp_path):
    extra = {"model": "mine", "eval_episodes": 8}
    planned = plan_generalisation("embedded", tmp_path, [1, 2, 1], extra)
    # trainings, initial models, then each policy in the six other environments
    assert len(planned) == 2 + 7 + 2 * 6
    assert all(run.flags["eval_episodes"] == 8 for run in planned)
    assert [run.flags["model"] for run in planned[:9]] == ["mine"] * 9
    models = [str(tmp_path / f"babyai-goto-seed{seed}" / "model") for seed in (1, 2)]
    assert [run.flags["model"] for run in planned[9:]] == [models[0]] * 6 + [models[1]] * 6
    assert len({run.path for run in planned}) == len(planned)
    # two processes share the work by seeds, and one of them has the initial models
    assert len(plan_generalisation("embedded", tmp_path, [2], {})) == 1 + 6


def test_the_page_by_hand(tmp_path):
    planned = plan_generalisation("embedded", tmp_path / "runs", [1, 2], {})
    for run in planned[:-1]:  # the last is still missing
        success, end = 0.5, run.flags.get("num_updates", 0)
        if run.flags["env_name"] in GAINS and "-on-" in run.row.name:
            success += GAINS[run.flags["env_name"]][run.seed - 1]
        evals = [EVALUATION | {"eval/episodes": 100, "eval/success": success, "update": end}]
        settings = {"num_updates": end} if end else {"eval_only": True}
        write_run(run.path, (), evals, seed=run.seed, **settings)
    write_generalisation(tmp_path / "page.md", "small", planned)
    page = (tmp_path / "page.md").read_text()
    rows = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if "|" in line}
    assert rows["babyai-pickup"].endswith(
        "| 0.650 [0.600, 0.700] | 0.600 0.700 | +0.150 [+0.100, +0.200] | seen |"
    )
    # small, but all of it above 0
    assert rows["babyai-open"].endswith("| +0.030 [+0.020, +0.040] | seen |")
    # equal in all seeds: no gain of more than the margin
    assert rows["babyai-goto-16x16"].endswith("| +0.000 [+0.000, +0.000] | not seen |")
    assert rows["babyai-goto"].endswith("| 0.500 0.500 | +0.000 [+0.000, +0.000] | not seen |")
    assert rows["babyai-putnext"].endswith("| 0.500 | - | - |")  # one seed
    assert "Episodes: 100. Commits: aaaaaaa-dirty." in page
    assert "The margin is 0.05." in page
    assert page.endswith("Missing:\n\n- babyai-putnext, seed 2: not begun\n")
