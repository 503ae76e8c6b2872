"""Reading runs: what belongs together, and what is missing or torn."""

from made_runs import EVALUATION, write_run

from reports.finals import first_evaluation, latest_evaluation
from reports.groups import differing, group_runs
from reports.run_files import facts_of, read_runs


def update(u, success=0.5):
    return {"update": u + 1, "turns": 8 * (u + 1), "rollout/success": success}


def read_one(path):
    notes = []
    (run,) = read_runs([path], notes)
    return run, notes


# ---- groups -------------------------------------------------------------------------------------


def test_runs_that_differ_in_their_seeds_only_are_one_group(tmp_path):
    same = dict(run_dir="somewhere", resume=None, value_clip=float("inf"))
    other = dict(run_dir="elsewhere", resume="a1", eval_interval=9)
    other |= dict(env_workers=7, env_threads=0)  # where environments run
    paths = [
        write_run(tmp_path / "a2", seed=2, **same),
        write_run(tmp_path / "a1", seed=1, **same | other),
        write_run(tmp_path / "b1", seed=1, critic_layers=0, **same),
    ]
    groups = group_runs(read_runs(paths, []))
    assert [[run.name for run in group.runs] for group in groups] == [["a2", "a1"], ["b1"]]
    labels = [group.label for group in groups]
    # not given at all is another setting than any value
    assert labels == ["critic_layers - (2 seeds)", "critic_layers 0"]


def test_flags_that_only_older_runs_have_make_no_difference(tmp_path):
    old = dict(max_env_faults=0.1, max_skipped_steps=10, kl_horizon=10000, keep_checkpoints=3)
    paths = [write_run(tmp_path / "new"), write_run(tmp_path / "old", export="merged", **old)]
    paths += [write_run(tmp_path / "other", report=False, **old | {"kl_horizon": 500})]
    groups = group_runs(read_runs(paths, []))
    assert [[run.name for run in group.runs] for group in groups] == [["new", "old"], ["other"]]
    assert groups[1].label == "kl_horizon 500"


def test_labels_name_the_fewest_settings_that_distinguish_all_groups(tmp_path):
    # lr splits four runs into two, clip into three; e_len says no more than clip, lr the rest
    settings = [(1, 1, 8), (1, 2, 8), (2, 2, 8), (1, 3, 16)]  # lr, clip, e_len
    paths = [
        write_run(tmp_path / str(k), lr=lr, clip=clip, e_len=e_len, model=f"/models/{clip}")
        for k, (lr, clip, e_len) in enumerate(settings)
    ]
    runs = read_runs(paths, [])
    assert differing(runs) == ["e_len", "lr", "clip", "model"]
    assert [group.label for group in group_runs(runs)] == [
        "clip 1, lr 1", "clip 2, lr 1", "clip 2, lr 2", "clip 3, lr 1"]  # fmt: skip
    one = write_run(tmp_path / "one", model="/models/one/")
    other = write_run(tmp_path / "other", model="/models/other", env_name="toys")
    assert [group.label for group in group_runs(read_runs([one, other], []))] == ["toy", "toys"]
    three = [one, write_run(tmp_path / "two", model="/models/two")]
    assert [g.label for g in group_runs(read_runs(three, []))] == ["model one", "model two"]
    assert [g.label for g in group_runs(read_runs([one], []))] == ["toy"]


def test_a_run_that_is_given_twice_counts_once(tmp_path):
    run = write_run(tmp_path / "run")
    assert len(read_runs([run, tmp_path / "x" / ".." / "run"], [])) == 1


def test_other_directories_do_not_lengthen_the_labels(tmp_path):
    paths = [write_run(tmp_path / "runs" / name) for name in ("a", "b")]
    assert [run.name for run in read_runs([*paths, tmp_path / "nothing"], [])] == ["a", "b"]


# ---- what is missing or torn --------------------------------------------------------------------


def test_a_torn_last_line_is_left_out(tmp_path):
    path = write_run(tmp_path / "run", [update(0), update(1)])
    whole = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(whole[:-5])
    run, notes = read_one(path)
    assert run.curve("rollout/success") == {8: 0.5}
    assert notes == ["run/metrics.jsonl: skipped 1 of 2 lines"]
    (path / "metrics.jsonl").write_bytes(whole.encode() + b"\0\0\xff\n3\n[]\n{}\n")
    run, notes = read_one(path)
    assert run.curve("rollout/success") == {8: 0.5, 16: 0.5}
    assert notes == ["run/metrics.jsonl: skipped 4 of 6 lines"]


def test_none_and_not_a_number_are_gaps(tmp_path):
    values = [None, 0.25, float("nan"), float("inf"), "0.5", 0.75]
    path = write_run(tmp_path / "run", [update(u, value) for u, value in enumerate(values)])
    run, notes = read_one(path)
    assert run.curve("rollout/success") == {16: 0.25, 48: 0.75}
    assert run.curve("kl/ref_think") == {} and notes == []


def test_evaluations_that_somebody_asked_for_are_not_the_runs(tmp_path):
    own = [EVALUATION | {"update": u, "eval/success": u / 4} for u in (0, 3)]
    asked = [e | {"eval/success": 0.9, "asked": True} for e in own]
    path = write_run(tmp_path / "run", evals=own + asked)
    run, _ = read_one(path)
    assert [first_evaluation(run), latest_evaluation(run)] == own
    assert ("success", "0.000 (update 0), 0.750 (update 3)") in facts_of(path)
