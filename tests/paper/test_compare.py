"""Comparisons: every command is one of main's, the search decides, pages tell how far they are."""

import json
import warnings
from pathlib import Path

import pytest
from made_runs import EVALUATION, dry_run, write_run

import arguments
from common.estimator import key_of
from paper import reproduce
from paper.compare import ComparisonPlan
from paper.compared import difference_table, runs_of, task_table
from paper.comparisons import COMPARISONS
from paper.curves import mean_curve, points
from paper.methods import BATCH_TURNS, SEARCH_SEEDS
from paper.prompt_lengths import lengths_table, prompt_lengths
from paper.quantities import final_evaluation
from recipes import MODELS
from reports.run_files import read_runs
from run.logged_turn import TYPES

ROOT = Path(__file__).resolve().parents[2]
EMPTY_TURN = {name: 0.0 if kind not in (int, str, list, bool) else kind()
              for name, kind in TYPES.items()}  # fmt: skip


def made(run, success: float, evals=None, **settings) -> None:
    """A finished run: its last evaluation and updates of 256 turns and a minute."""
    if run.flags.get("eval_only"):
        evals = [EVALUATION | {"update": 0, "eval/success": 0.25}]
        write_run(run.path, [], evals, **run.flags)
        return
    last = run.flags["num_updates"]
    after = EVALUATION | {"update": last, "eval/success": success, "eval/episodes": 512}
    metrics = [
        {
            "update": u,
            "turns": BATCH_TURNS * u,
            "time/processor": 60.0,
            "rollout/success": success * u / last,
        }
        for u in range(1, last + 1)
    ]
    flags = dict(n_env=32, e_len=8) | run.flags | settings
    write_run(run.path, metrics, [after], **flags)
    if flags.get("w_epoch"):
        warm_up = {
            "update": 0,
            "warmup/turns": BATCH_TURNS * flags["w_epoch"],
            "time/processor": 120.0,
        }
        (run.path / "warmup.jsonl").write_text(json.dumps(warm_up) + "\n")


def search(folder: Path, best=2.0) -> ComparisonPlan:
    """A plan whose search is done: 2 is the best factor of rloo, and the others are all equal."""
    plan = ComparisonPlan(
        COMPARISONS["estimators"], "embedded", folder / "embedded" / "estimators", {}
    )
    for run in plan.search():
        rloo = run.row.name == f"babyai-pickup-rloo-lr{best:g}x"
        made(run, 0.9 if rloo else 0.5)
    return plan


def test_the_search_is_a_command_of_main_and_comes_first(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert reproduce.main(["estimators", "--dry-run", "--runs", str(tmp_path)]) == 0
    assert "# then the comparison, with the learning rates" in capsys.readouterr().out
    commands = dry_run(capsys, "estimators", "--runs", str(tmp_path))
    assert len(commands) == 6 * 3 * len(SEARCH_SEEDS)
    parsed = [arguments.get_args(command) for command in commands]
    assert {args.env_name for args in parsed} == {"babyai-pickup"}
    assert {round(args.lr / 2e-4, 6) for args in parsed} == {0.5, 1.0, 2.0}
    assert {args.seed for args in parsed} == set(SEARCH_SEEDS)
    assert len({args.run_dir for args in parsed}) == len(parsed)
    # two processes share the work by seeds
    assert len(dry_run(capsys, "estimators", "--runs", str(tmp_path), "--seeds", "101", "1")) == 18
    assert list(tmp_path.iterdir()) == []


def test_no_two_pages_share_a_run_with_other_flags(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    flags = {}
    pages = [*reproduce.PAPER_PAGES, *reproduce.OWN_PAGES, *COMPARISONS]
    for page in pages:
        for command in dry_run(capsys, page, "--runs", str(tmp_path)):
            run = command[command.index("--run-dir") + 1]
            first, its_flags = flags.setdefault(run, (page, sorted(command)))
            assert its_flags == sorted(command), f"{page} and {first} share {run}"
    assert len(flags) > 200


def test_all_runs_play_the_same_turns_with_the_rate_that_won(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = search(tmp_path)
    factors = {method.name: plan.factor(method) for method in plan.comparison.methods}
    assert factors == dict.fromkeys(factors, 1.0) | {"rloo": 2.0}
    commands = dry_run(capsys, "estimators", "--runs", str(tmp_path))
    # one evaluation before training serves all runs of a task
    first, commands = commands[:4], commands[4:]
    before = [arguments.get_args(command) for command in first]
    assert all(args.eval_only and args.eval_episodes == 512 for args in before)
    assert len(commands) == 7 * 4 * 5  # methods, tasks, seeds
    turns = {}
    for args in map(arguments.get_args, commands):
        critic = not args.update.no_critic
        assert args.eval_interval > args.num_updates and args.eval_episodes == 512
        grouped = args.advantages in ("rloo", "grpo", "gigpo")
        assert (args.group_size == 8) == grouped
        assert critic != (grouped or args.advantages == "vine:1")
        batch = args.n_env * args.e_len
        assert args.num_turns == (None if critic else args.num_updates * batch)
        turns.setdefault(args.env_name, set()).add((args.w_epoch + args.num_updates) * batch)
        rate = 4e-4 if args.env_name == "tools-calculator" else 2e-4
        assert args.lr == pytest.approx(rate * factors[key_of(args.advantages)])
        assert args.env_name in {first.env_name for first in before}
    assert turns == {"babyai-pickup": {20480}, "babyai-open": {20480},
                     "baba-two_room-goto_win": {15360}, "tools-calculator": {25600}}  # fmt: skip


def test_ablations_change_one_thing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    commands = dry_run(capsys, "ablations", "--runs", str(tmp_path), "--seeds", "1")
    parsed = [vars(arguments.get_args(command)) for command in commands]
    first, plain, *others = parsed
    assert first["eval_only"] and first["model"] == plain["model"]
    assert (plain["critic_layers"], plain["first_token_weight"], plain["w_epoch"]) == (1, 3, 40)
    changed = [{k for k in args if args[k] != plain[k]} - {"run_dir"} for args in others]
    assert changed == [
        {"critic_layers"}, {"critic_layers"}, {"first_token_weight"},
        {"w_epoch", "num_updates", "eval_interval"}, {"gamma_step", "lam_step"},
        {"group_size", "num_turns"},
    ]  # fmt: skip


def test_the_page_shows_its_progress(tmp_path, capsys, monkeypatch):
    runs = tmp_path / "runs"
    plan = search(runs)
    path = runs / "estimators.md"

    def execute(words):
        """The third training is interrupted."""
        assert "--resume" not in words
        executed.append(words)
        run = next(r for r in plan.runs() if str(r.path) == words[words.index("--run-dir") + 1])
        if len(executed) == 4 + 3:  # the initial models are evaluated first
            return 130
        made(run, 0.8)
        return 0

    executed = []
    monkeypatch.setattr("paper.runs.execute", execute)
    words = ["estimators", "--runs", str(runs)]
    assert reproduce.main(words) == 130
    text = path.read_text()
    assert "36 of 36 runs of the search and 2 of 140 runs are finished." in text
    assert "| RLOO | 0.500 0.500 | 0.500 0.500 | 0.900 0.900 | 2 |" in text
    # 20,480 turns with the warm-up's; 40 minutes of updates and 2 of the warm-up
    assert "| dual-discount GAE (ours) | 0.250 | 0.800 | 0.800 | 20,480 | 42.0 | 1 of 5 |" in text
    assert "| GRPO |  | - | - | - | - | 0 of 5 |" in text
    for axis in ("turns", "minutes"):
        picture = runs / f"estimators-babyai-pickup-{axis}.png"
        assert picture.read_bytes().startswith(b"\x89PNG") and picture.name in text
    # the same command goes on with that run, and leaves what people wrote in the page
    path.write_text(text + "\n## Findings\n\n- None yet.\n")
    assert reproduce.main([*words, "--only", "babyai-pickup-turn-gae"]) == 0
    assert executed[7] == executed[6]
    assert "7 of 140 runs are finished." in path.read_text()
    assert path.read_text().endswith("\n\n## Findings\n\n- None yet.\n")
    assert path.read_text().count("## Findings") == 1 and not [*runs.glob("*.md.*")]
    assert "0.800 [0.800, 0.800]" in path.read_text()
    capsys.readouterr()
    assert reproduce.main([*words, "--only", "crafter"]) == 2
    assert "no run of estimators matches; its runs: babyai-" in capsys.readouterr().err


# ---- numbers ------------------------------------------------------------------------------------


def test_curves_count_the_warm_up(tmp_path):
    plan = ComparisonPlan(COMPARISONS["ablations"], "embedded", tmp_path, {})
    one = plan.runs([1])[1]  # the first evaluates the initial model
    made(one, 1.0)
    (run,) = read_runs([one.path], [])
    turns = points(run, "turns")
    assert min(turns) == 40 * BATCH_TURNS + BATCH_TURNS and max(turns) == 80 * BATCH_TURNS
    assert min(points(run, "minutes")) == 3.0
    line = mean_curve([turns])
    assert line[-1] == (80 * BATCH_TURNS, 1.0, 1.0, 1.0)
    assert line[0][0] >= 41 * BATCH_TURNS  # before the first update nothing is known
    assert mean_curve([]) == []


def test_curves_begin_where_a_hundred_episodes_have_ended(tmp_path):
    success = {10: 1.0, 99: 0.9, 100: 0.4}  # episodes that have ended -> success
    metrics = [
        {"update": k, "turns": 256 * k, "rollout/episodes": n, "rollout/success": success[n]}
        for k, n in enumerate(success, start=1)
    ]
    (run,) = read_runs([write_run(tmp_path / "a", metrics)], [])
    assert points(run, "turns") == {256: None, 512: None, 768: 0.4}
    # without a warm-up the first episode of every environment has to end, too
    shares = (0.5, 0.25, 0.0)
    fair = [
        row | {"rollout/episodes": 100, "rollout/first_under_way": share}
        for row, share in zip(metrics, shares, strict=True)
    ]
    (run,) = read_runs([write_run(tmp_path / "b", fair)], [])
    assert points(run, "turns") == {256: None, 512: None, 768: 0.4}


def test_a_run_that_ends_with_its_turns_is_finished(tmp_path):
    metrics = [{"update": u, "turns": 300 * u, "rollout/success": 0.5} for u in (1, 2, 3)]
    settings = dict(num_updates=80, num_turns=900)
    run = write_run(tmp_path / "a", metrics, [EVALUATION | {"update": 3}], **settings)
    assert final_evaluation(read_runs([run], [])[0])["update"] == 3
    evals = [EVALUATION | {"update": 3, "asked": True}, EVALUATION | {"update": 3}]
    run = write_run(tmp_path / "c", metrics, evals, **settings)
    assert "asked" not in final_evaluation(read_runs([run], [])[0])  # whatever somebody asked for
    run = write_run(tmp_path / "d", metrics, evals[:1], **settings)
    assert final_evaluation(read_runs([run], [])[0]) is None
    run = write_run(tmp_path / "b", metrics[:2], [EVALUATION | {"update": 2}], **settings)
    assert final_evaluation(read_runs([run], [])[0]) is None


def test_long_episodes_hold_the_batches_equal(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = ComparisonPlan(
        COMPARISONS["long-episodes"], "embedded", tmp_path / "embedded/long-episodes", {}
    )
    commands = dry_run(capsys, "long-episodes", "--runs", str(tmp_path))
    parsed = [arguments.get_args(command) for command in commands]
    before = [args for args in parsed if args.eval_only]
    assert [args.eval_episodes for args in before] == [128, 512] and len(parsed) == 2 + 2 * 7 * 5
    for args in [args for args in parsed if not args.eval_only]:
        assert args.eval_episodes == (128 if args.env_name == "crafter" else 512)
        assert args.n_env * args.e_len == 512  # of whole episodes it is the least
        if args.group_size:
            assert args.group_size == (args.n_env if args.update.no_critic else 1)
            assert args.n_env == 8 and args.num_turns + 512 * args.w_epoch == 30_720
        assert (args.w_epoch + args.num_updates) * 512 == 30_720
        assert (args.w_epoch == 0) == args.update.no_critic
        halved = args.advantages in ("token-gae", "gigpo")
        assert args.lr == (1e-4 if halved else 2e-4)
    ours = plan.runs([2])[0]
    end = EVALUATION | {"update": 50, "eval/success": 0.1, "eval/return": 7.25}
    metrics = [{"update": 1, "turns": 512, "rollout/success": 0.1, "rollout/return": 3.5}]
    write_run(ours.path, metrics, [end], **ours.flags)
    (run,) = read_runs([ours.path], [])
    assert points(run, "turns") == {512: 3.5}
    task = plan.comparison.tasks[0]
    found = {(task, method): runs_of(plan, task, method) for method in plan.comparison.methods}
    text = task_table(plan.comparison, task, found, plan)
    assert "| 7.250 | 7.250 | 512 |" in text


def test_differences_are_welchs(tmp_path):
    # .5 and .6 against .8 and .9: variances .005, so the standard error is (.005 / 2 * 2) ** .5 =
    # .0707; with two degrees of freedom t = 4.303, so the half-width is .304. Success in training
    # rises to the end in 40 steps of equal size: its mean is 41 / 80 of that
    plan = ComparisonPlan(COMPARISONS["ablations"], "embedded", tmp_path, {})
    task = plan.comparison.tasks[0]
    ends = {"dual-gae": (0.5, 0.6), "layers-0": (0.8, 0.9), "layers-2": (0.7,)}
    for run in plan.runs([1, 2]):
        own = ends.get(run.row.name.removeprefix("babyai-pickup-"), ())
        if run.seed <= len(own):
            made(run, own[run.seed - 1])
    found = {(task, method): runs_of(plan, task, method) for method in plan.comparison.methods}
    table = difference_table(plan.comparison, task, found, "dual-gae")
    assert (
        "| above dual-discount GAE (ours) | after training | in the mean over training |" in table
    )
    assert "| critic: a head alone | +0.300 [-0.004, +0.604] | +0.154 [-0.002, +0.310] |" in table
    assert "two layers" not in table  # it has one run
    # the same curve, but each of its updates comes later
    warmed = found[task, plan.comparison.methods[0]][1]
    warmed.warmup.append({"warmup/turns": 256})
    table = difference_table(plan.comparison, task, found, "dual-gae")
    assert "| critic: a head alone | +0.300 [-0.004, +0.604] | - |" in table
    # and no episode has ended in training: nothing to take a mean of, and no warning
    for run in found[task, plan.comparison.methods[0]].values():
        run.metrics[:] = [{"update": row["update"], "turns": row["turns"]} for row in run.metrics]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = difference_table(plan.comparison, task, found, "dual-gae")
    assert "| critic: a head alone | +0.300 [-0.004, +0.604] | - |" in table


# ---- memories -----------------------------------------------------------------------------------


def test_memories_share_a_model_and_the_first_run_evaluates_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    commands = dry_run(capsys, "memories", "--runs", str(tmp_path), "--seeds", "1", "2")
    parsed = [arguments.get_args(command) for command in commands]
    assert len(parsed) == 2 * 3 * 8 and not any(args.eval_only for args in parsed)
    assert len({args.model for args in parsed}) == 1
    for args in parsed:  # one evaluation of the initial model is enough, as it has no seed
        assert args.eval_interval == args.num_updates + (args.seed != 1)
    memories = {(args.memory, args.memory_length) for args in parsed if args.memory != "full"}
    assert memories == {("window", 1), ("window", 4), ("window", 8), ("action", 8),
                        ("periodic", 8), ("notes", 1), ("summary", 8)}  # fmt: skip


def test_the_table_of_memories_by_hand(tmp_path):
    plan = ComparisonPlan(COMPARISONS["memories"], "embedded", tmp_path, {})
    notes = next(run for run in plan.runs([1]) if run.row.name == "errands-6-notes-1")
    last = notes.flags["num_updates"]
    ends = [EVALUATION | {"update": u, "eval/success": s} for u, s in ((0, 0.25), (last, 0.75))]
    # 100 turns of 60 tokens, then 200 of 100: .026 million
    rows = [
        {"turns": 100, "rollout/prompt_tokens": 50, "rollout/response_tokens": 10},
        {"turns": 300, "rollout/prompt_tokens": 80, "rollout/response_tokens": 20},
    ]
    write_run(notes.path, rows, ends, **notes.flags)
    task = plan.comparison.tasks[0]
    found = {(task, method): runs_of(plan, task, method) for method in plan.comparison.methods}
    (run,) = read_runs([notes.path], [])
    assert [*points(run, "tokens")] == pytest.approx([0.006, 0.026])
    text = task_table(plan.comparison, task, found, plan)
    assert "| each seed | turns | million tokens | processor minutes | seeds |" in text
    assert "| notes 1 | 0.250 | 0.750 | 0.750 | 300 | 0.03 | - | 1 of 5 |" in text
    assert "| full |  | - | - | - | - | - | 0 of 5 |" in text
    assert lengths_table(plan, task) == ""  # the run has no model


def test_prompt_lengths_are_means_over_runs(tmp_path):
    # prompts of one and three tokens in the first turn, of two in the second
    for name, turns in (("a", {1: 1}), ("b", {1: 3, 2: 2})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").symlink_to(MODELS / "tiny-errands")
        records = [EMPTY_TURN | {"step": t, "prompt": "<|im_end|>" * n} for t, n in turns.items()]
        text = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / name / "trajectories.jsonl").write_text(text)
    assert prompt_lengths([tmp_path / "a", tmp_path / "b", tmp_path / "c"]) == {1: 2, 2: 2}
