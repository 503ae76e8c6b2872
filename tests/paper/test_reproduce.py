"""Reproduction: its commands are main.py's, its numbers by hand, an interrupted table goes on."""

import signal
import time
from pathlib import Path

import pytest
from made_runs import EVALUATION, dry_run, write_run
from real_runs import Forked

import arguments
from envs.games.baba_levels import PLANS
from paper import reproduce, runs
from paper.quantities import final_evaluation
from paper.results import measured, results_page, write_results
from paper.rows import SCALES
from paper.tables import TABLES
from reports.run_files import read_runs

ROOT = Path(__file__).resolve().parents[2]
# an episode has 4 turns, an update 2 x 2 of them
SMALL = """--n-env 2 --e-len 2 --minibatch 4 --num-updates 6 --eval-interval 6 --w-epoch 1
--w-iter 1 --eval-episodes 2 --max-episode-steps 4 --response-limit 2 --save-interval 2"""


# ---- commands -----------------------------------------------------------------------------------


# 5 tasks x 6 lengths; 1, 9, 2, 4, 9 and 12 rows; 3 or 5 seeds of each
COUNTS = {
    "table1": (30, 30),
    "table2": (3, 5),
    "table3": (27, 9 * 5),
    "figure3": (6, 10),
    "figure4": (12, 4 * 5),
    "figure5": (27, 9 * 5),
    "claims": (36, 12 * 5),
    "babaisai": (40, 40),
    "generalisation": (3 + 6 + 6 * 3, 5 + 6 + 6 * 5),  # trainings; 6 environments; 6 elsewhere
    "critic": (4, 4),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", COUNTS)
def test_every_command_is_one_of_main(name, scale, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    runs, count = tmp_path / "runs", COUNTS[name][scale == "embedded"]
    out = ["--runs", str(runs), "--out", str(tmp_path / "out")]
    commands = dry_run(capsys, name, "--scale", scale, *out)
    assert len(commands) == count
    parsed = [arguments.get_args(command) for command in commands]
    for args in parsed:
        assert args.eval_episodes == (128 if args.eval_only or args.env_name == "crafter" else 512)
        assert args.run_dir.is_relative_to(runs / scale)
        trained = args.model.startswith(str(runs))  # by another run of the page
        first = args.run_dir.name.split("-seed")[0] == "babyai-goto"  # what is tried elsewhere
        assert args.eval_only == (
            name in ("table1", "babaisai") or name == "generalisation" and not first
        )
        embedded = (ROOT / args.model).is_dir()
        if not trained:
            assert embedded == (scale == "embedded") and (args.lr > 1e-6) == embedded
        if not args.eval_only:
            later = args.seed != 1 or name == "critic"  # one "before" serves all seeds
            assert args.eval_interval == args.num_updates + later > later
    assert len({args.run_dir for args in parsed}) == count
    assert len({str(vars(args) | {"run_dir": ""}) for args in parsed}) == count  # all differ
    assert list(tmp_path.iterdir()) == []  # nothing was touched


def test_the_papers_settings(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)

    def get(*words):
        return arguments.get_args(dry_run(capsys, *words, "--scale", "paper")[0])

    goto = get("table3", "--seeds", "5", "--only", "babyai-goto")
    assert (goto.model, goto.seed) == ("Qwen/Qwen2.5-3B-Instruct", 5)
    assert (goto.n_env, goto.e_len, goto.lr, goto.num_updates) == (32, 8, 1e-6, 300)
    crafter = get("table2")
    assert (crafter.model, crafter.num_updates) == ("Qwen/Qwen2.5-7B-Instruct", 170)
    plain = get("figure3", "--only", "undiscounted")
    assert (plain.gamma_step, plain.lam_step, plain.gamma_token, plain.lam_token) == (1, 1, 1, 1)
    long = get("table1", "--only", "goto-zero-shot-n32")
    # positions of Qwen2.5: 32768 for prompt and response
    assert long.memory_length == 32 and long.prompt_limit + long.response_limit <= 32768


def test_the_tasks_of_babaisai_are_those_of_the_environment():
    assert {row.env for row in TABLES["babaisai"].rows} == {f"baba-{task}" for task in PLANS}
    paper = [row.label for row in TABLES["babaisai"].rows if row.paper != ("-", "-")]
    assert len(paper) == 4


def test_tables_share_runs(capsys, tmp_path):
    seed = ["--seeds", "1", "--runs", str(tmp_path)]
    (one,) = dry_run(capsys, "table3", "--only", "babyai-pickup", *seed)
    for other in ("figure3", "figure4", "figure5", "claims"):
        assert one in dry_run(capsys, other, *seed)
    (crafter,) = dry_run(capsys, "table2", *seed)
    for other in ("figure5", "claims"):
        assert crafter in dry_run(capsys, other, *seed)


def test_claims_change_one_thing_at_equal_turns(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    commands = dry_run(capsys, "claims", "--seeds", "1", "--runs", str(tmp_path))
    *parsed, crafter = (vars(arguments.get_args(command)) for command in commands)
    window, plain = parsed[0], parsed[3]

    def turns(args):
        return args["n_env"] * args["e_len"] * (args["w_epoch"] + args["num_updates"])

    assert {turns(args) for args in parsed} == {256 * 80} and crafter["env_name"] == "crafter"

    def changed(args, base):
        return {k: v for k, v in args.items() if v != base[k] and k != "run_dir"}

    assert changed(parsed[1], window) == {"memory": "action"}
    assert changed(parsed[2], window) == {"memory": "periodic"}
    assert [changed(args, plain) for args in parsed[4:]] == [
        {"on_invalid": "end"}, {"kl_coef": 1e-99}, {"n_env": 64, "e_len": 4},
        {"n_env": 16, "e_len": 16}, {"n_env": 8, "e_len": 32},
        {"w_epoch": 0, "num_updates": 80, "eval_interval": 80}, {"first_token_weight": 1.0},
    ]  # fmt: skip


def test_a_whole_name_chooses_one_row_and_a_part_all_that_have_it(capsys, tmp_path):
    seed = ["--seeds", "1", "--runs", str(tmp_path)]

    def chosen(*only):
        return len(dry_run(capsys, "table3", "--only", *only, *seed))

    assert chosen("baba-two_room-goto_win") == 1  # not ...-distr_obj_rule as well
    assert chosen("two_room") == 3
    assert chosen("babyai-open", "two_room-goto") == 3


def test_flags_for_main(capsys, tmp_path):
    other = ["table2", "--seeds", "1", "--runs", str(tmp_path)]
    flags = [
        "--eval-episodes=8",
        "--kl-coef",
        "-1",
        "--memory=my-own:Memory",
        "--gradient-checkpointing",
    ]
    (command,) = dry_run(capsys, *other, "--", *flags)
    assert command.count("--eval-episodes") == 1  # in the place of ours
    assert command[command.index("--eval-episodes") + 1] == "8"
    assert command[command.index("--kl-coef") + 1] == "-1" and "--gradient-checkpointing" in command
    assert command[command.index("--memory") + 1] == "my-own:Memory"


def test_tables_of_other_runs_are_not_written_over_those_of_the_project():
    def out(*words):
        return reproduce.out_folder(reproduce.make_program().parse_args(words))

    assert out("table1") == ROOT / "docs" / "results"
    assert out("table1", "--runs", "x") == Path("x")
    assert out("table1", "--runs", "x", "--out", "y") == Path("y")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table4", "invalid choice: 'table4'"),
        ("", "the following arguments are required: name"),
        ("table1 --scale big", "invalid choice: 'big'"),
        ("table3 --seeds one", "invalid int value: 'one'"),
        ("table3 --only goto_wim", "--only goto_wim: no run of table3 matches; its runs: b"),
        ("table3 -- --eval-episodes 8", "flags after -- change the runs"),
        ("table3 --runs x -- 8", "'8' after -- is not a flag of main.py"),
        ("table3 --runs x -- --n-env 8 9", "'9' after -- is not a flag of main.py"),
        ("table3 --runs x -- --run-dir y", "--run-dir cannot be given after --"),
        ("table3 --runs file --out x", "File exists: 'file'"),
        ("table3 --scale paper", "--scale paper needs a CUDA device"),
        ("estimators --scale paper", "--scale paper needs a CUDA device"),
        ("table3 --runs x --out file", "File exists: 'file'"),
        ("table3 --runs foreign", "is not a run directory: move it"),
        ("table3 --runs other", "was made with num_updates 3, not 40: move it"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_code_2(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "execute", lambda words: pytest.fail("something was run"))
    (tmp_path / "file").write_text("")
    (tmp_path / "foreign" / "embedded" / "babyai-goto-seed1" / "thing").mkdir(parents=True)
    write_run(tmp_path / "other" / "embedded" / "babyai-goto-seed1", env_name="babyai-goto")
    try:
        code = reproduce.main(words.split())
    except SystemExit as exit:
        code = exit.code
    error = capsys.readouterr().err
    assert code == 2 and error.startswith("paper.reproduce: error: ") and error.count("\n") == 1
    assert message in error


def test_finished_runs_are_skipped_and_unfinished_ones_go_on(tmp_path, capsys):
    last = SCALES["embedded"]["recipes"]["crafter"]["num_updates"]
    settings = dict(env_name="crafter", num_updates=last, eval_episodes=128)
    for seed, updates in ((1, (0, last)), (2, (0,))):
        evals = [EVALUATION | {"update": update} for update in updates]
        run = tmp_path / "embedded" / f"crafter-seed{seed}"
        write_run(run, evals=evals, seed=seed, **settings)
    (tmp_path / "embedded" / "crafter-seed3").mkdir()  # empty: it got nowhere
    begun, new, *_ = dry_run(capsys, "table2", "--runs", str(tmp_path))
    assert begun == ["--resume", str(tmp_path / "embedded" / "crafter-seed2")]
    assert new[new.index("--seed") + 1] == "3"


def test_a_run_that_another_process_has_finished_meanwhile_is_skipped(tmp_path, monkeypatch):
    last = SCALES["embedded"]["recipes"]["crafter"]["num_updates"]
    settings = dict(env_name="crafter", num_updates=last, eval_episodes=128)
    executed = []

    def execute(words):
        executed.append(words[words.index("--seed") + 1])
        for seed in (1, 2):  # the other process is faster
            evals = [EVALUATION | {"update": update} for update in (0, last)]
            write_run(
                tmp_path / "embedded" / f"crafter-seed{seed}", evals=evals, seed=seed, **settings
            )
        return 0

    monkeypatch.setattr(runs, "execute", execute)
    flags = ["--runs", str(tmp_path), "--seeds", "1", "2", "--only", "crafter"]
    assert reproduce.main(["table2", *flags]) == 0
    assert executed == ["1"]


# ---- numbers ------------------------------------------------------------------------------------


def evaluation(success, episodes=10, **more):
    return EVALUATION | {"eval/success": success, "eval/episodes": episodes} | more


def test_seeds_are_pooled_by_hand():
    # 8 of 10 and 10 of 10: mean .9, pooled 18 of 20. z^2 = 3.841459,
    # centre .9 + z^2 / 40 = .996036, half 1.959964 (.09 / 20 + z^2 / 1600)^.5 = .162818,
    # both over 1 + z^2 / 20 = 1.192073
    # -> .833218 / 1.192073 = .69897, 1.158854 / 1.192073 = .97213
    assert measured("success", [evaluation(0.8), evaluation(1.0)]) == "0.900 [0.699, 0.972]"
    # returns 5 +- .3 and 7 +- .4: mean 6, error (.09 + .16)^.5 / 2 = .25
    returns = [{"eval/return": 5.0, "eval/return_stderr": 0.3},
               {"eval/return": 7.0, "eval/return_stderr": 0.4}]  # fmt: skip
    assert measured("return", returns) == "6.00 +- 0.25"
    assert measured("success", []) == measured("return", []) == "-"


def read_one(path):
    return read_runs([path], [])[0]


def rows_of(text: str) -> dict[str, dict[str, str]]:
    """The first table of a page: label -> column -> cell."""
    text = text.split("## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    head, _, *rows = lines
    return {row[0]: dict(zip(["", *head], row, strict=True)) for row in rows}


def test_a_table_of_two_seeds_of_which_one_is_not_finished(tmp_path):
    evals = [evaluation(0.5), evaluation(0.8, update=3), evaluation(1.0, update=3)]
    metrics = [{"update": u + 1, "turns": 8 * (u + 1), "time/total": 60.0} for u in range(3)]
    # the second evaluation after 3 updates was made later, by hand
    done = write_run(tmp_path / "a", metrics, evals, num_updates=3)
    begun = write_run(tmp_path / "b", metrics[:2], evals[:1], num_updates=3, seed=2)
    row, *others = TABLES["table3"].rows
    runs = [(row, 1, read_one(done)), (row, 2, read_one(begun))]
    runs += [(other, 1, None) for other in others]
    text = results_page(TABLES["table3"], "tiny", runs)
    cells = rows_of(text)["babyai-goto"]
    # 5 of 10, 8 of 10, and three minutes of updates
    assert cells["before"] == "0.500 [0.237, 0.763]" and cells["after"] == "0.800 [0.490, 0.943]"
    assert (cells["paper, before"], cells["paper, after"]) == ("0.88 +- 0.06", "1.00 +- 0.00")
    rooms = rows_of(text)["baba-two_room-goto_win"]
    assert rooms["paper, after"] == "0.89 +- 0.17 (its page: 1.00)"
    assert (cells["over seeds"], cells["each seed"], cells["seeds"], cells["updates"]) == (
        "0.800", "0.800", "1", "3"
    )  # fmt: skip
    assert (cells["minutes"], cells["commit"]) == ("3.0", "aaaaaaa-dirty")
    assert rows_of(text)["babyai-open"]["after"] == "-"
    assert "- babyai-goto, seed 2: not finished, 2 of 3 updates" in text
    assert "- babyai-open, seed 1: not started" in text
    assert "score" not in cells and "value loss" not in cells


def test_the_table_of_crafter(tmp_path):
    def unlocked(k):
        return {"eval/achievements": k, "eval/achievement/eat": k / 2}

    evals = [evaluation(0, **unlocked(0.0)), evaluation(0, update=3, **unlocked(2.0))]
    run = write_run(tmp_path / "a", evals=evals, num_updates=3)
    (row,) = TABLES["table2"].rows
    text = results_page(TABLES["table2"], "tiny", [(row, 1, read_one(run))])
    cells = rows_of(text)["crafter"]
    # the one achievement: in none, then in 100 % of the episodes, which is exp(ln 101) - 1
    assert (cells["achievements"], cells["score"]) == ("0.00 -> 2.00", "0.00 -> 100.00")
    assert (cells["paper, before"], cells["paper, after"]) == ("5.80", "10.44")
    assert cells["after"] == "0.20 +- 0.05" and cells["paper, length"] == "172.23 -> 196.42"
    assert "Missing" not in text


def test_a_zero_shot_table_has_one_number_of_ours(tmp_path):
    run = write_run(tmp_path / "a", evals=[evaluation(0.5)], eval_only=True, num_updates=40)
    assert final_evaluation(read_one(run)) == evaluation(0.5)
    again = write_run(tmp_path / "b", evals=[asked := evaluation(0.7, asked=True)], eval_only=True)
    assert final_evaluation(read_one(again)) == asked  # it was interrupted, and taken up again
    rows = TABLES["table1"].rows
    text = results_page(TABLES["table1"], "tiny", [(rows[0], 1, read_one(run))])
    cells = rows_of(text)["babyai-goto, memory length 1"]
    assert (cells["paper"], cells["ours"]) == ("0.8750 +- 0.0585", "0.500 [0.237, 0.763]")
    assert "after" not in cells and "seeds" not in cells
    assert rows_of(text)["babyai-goto, memory length 2"]["paper"] == "0.8125 +- 0.0690"
    # 5 x 17.50 % - (53.13 + 18.75 + 6.25 + 6.25) % = 3.12 % = 1 of 32
    assert rows_of(text)["babyai-putnext, memory length 8"]["paper"] == "(1 of 32)"
    assert rows_of(text)["babyai-putnext, memory length 1"]["paper"] == "(0 of 32)"


def test_a_figure_has_pictures_and_the_value_loss(tmp_path):
    table, losses = TABLES["figure3"], [9.0, 9.0, *[0.25] * 9, 0.5]
    metrics = [{"update": u, "turns": 8 * u, "ppo/value_loss": loss, "rollout/success": 0.5}
               for u, loss in enumerate(losses, 1)]  # fmt: skip
    run = write_run(tmp_path / "a", metrics, [evaluation(0.5, update=12)], num_updates=12)
    runs = [(table.rows[0], 1, read_one(run)), (table.rows[1], 1, None)]
    write_results(tmp_path / "figure3.md", table, "tiny", runs)
    text = (tmp_path / "figure3.md").read_text()
    # the last ten: (9 x .25 + .5) / 10 = .275
    assert rows_of(text)["gamma_step .99, lam_step .95"]["value loss"] == "0.2750"
    for picture in ("figure3-success.png", "figure3-value_loss.png"):
        assert f"![{picture}]({picture})" in text
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


# ---- the whole ----------------------------------------------------------------------------------


def test_an_interrupted_table_goes_on_and_is_written(tmp_path):
    words = ["table3", "--only", "babyai-goto", "--seeds", "1"]
    words += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--"]
    command = ["-m", "paper.reproduce", *words, *SMALL.split()]
    run = tmp_path / "runs" / "embedded" / "babyai-goto-seed1"
    table = tmp_path / "out" / "table3-embedded.md"

    def start():
        return Forked(command, ROOT)  # its own child is a real `python main.py`

    process = start()
    while process.poll() is None and not (run / "metrics.jsonl").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "babyai-goto, seed 1: not finished" in table.read_text()

    process = start()
    message, _ = process.communicate()
    assert process.returncode == 0 and f"main.py --resume {run}" in message
    assert (run / "metrics.jsonl").read_text().count("\n") == 6
    cells = rows_of(table.read_text())["babyai-goto"]
    assert (cells["updates"], cells["episodes"], cells["seeds"]) == ("6", "2", "1")
    words = f"`python -m paper.reproduce table3 --scale embedded --seeds 1 --runs {tmp_path}"
    assert words in table.read_text() and "-- --n-env 2" in table.read_text()

    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    message, _ = start().communicate()
    assert "babyai-goto-seed1 is finished" in message
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*")}
