"""The defaults: the paper's runs, the embedded model's, and what overrides what."""

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock, mock_open

import pytest
import torch

import arguments
import recipes
from arguments import get_args, paper
from common.execution import FORMS, execution
from common.flags import spelled
from recipes import NARROW, SLIM, TINY, WORKERS

ROOT = Path(__file__).resolve().parents[1]
MODEL = ["--model", "org/model"]


def test_defaults_are_the_papers_babyai_run():
    args = get_args(["--env-name", "babyai-goto", *MODEL])
    assert (args.n_env, args.e_len, args.minibatch, args.ppo_epoch) == (32, 8, 128, 1)
    assert (args.lr, args.critic_lr, args.max_grad_norm, args.temperature) == (1e-6, 1e-5, 1, 1)
    assert (args.prompt_limit, args.response_limit, args.memory_length) == (1024, 512, 1)
    assert (args.format_penalty, args.num_updates, args.eval_interval) == (0.1, 300, 30)
    assert (args.w_epoch, args.w_iter, args.w_fraction) == (40, 5, 0.1)
    assert (args.gamma_step, args.lam_step, args.gamma_token, args.lam_token) == (0.99, 0.95, 1, 1)
    assert (args.kl_coef, args.kl_target, args.kl_in) == (0.001, None, "reward")
    assert (args.clip, args.value_clip, args.first_token_weight) == (0.2, 0.5, 3)
    assert args.entropy_coef == 0 and not args.use_proper_time_limits


def test_defaults_of_babaisai():
    args = get_args(["--env-name", "baba-goto_win", *MODEL])
    assert (args.response_limit, args.w_epoch, args.w_iter) == (384, 40, 10)
    assert (args.n_env, args.e_len, args.minibatch, args.num_updates) == (32, 8, 128, 300)


def test_defaults_of_crafter():
    args = get_args(["--env-name", "crafter", *MODEL])
    assert (args.n_env, args.e_len, args.minibatch, args.num_updates) == (128, 16, 1024, 170)
    assert (args.w_epoch, args.w_iter, args.prompt_limit) == (20, 20, 4096)
    assert math.isinf(args.value_clip)  # off: its returns are about 10


def test_the_model_follows_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert get_args([]).model == "Qwen/Qwen2.5-3B-Instruct"
    assert get_args(["--env-name", "crafter"]).model == "Qwen/Qwen2.5-7B-Instruct"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Path(get_args([]).model) == TINY


def test_the_embedded_model_has_its_own_recipe_wherever_it_is_named():
    paper, embedded = get_args(MODEL), get_args(["--model", str(TINY)])
    assert embedded.lr > paper.lr
    by_another_path = get_args(["--model", str(TINY.parent / ".." / "models" / "tiny")])
    assert by_another_path.lr == embedded.lr


def test_a_copy_of_the_embedded_model_keeps_its_recipe(tmp_path):
    # wherever it is, and for each family; the model itself stays the one that is typed
    copy = str(shutil.copytree(TINY, tmp_path / "copy"))
    for env in ("babyai-goto", "baba-goto_win", "crafter"):
        ours, theirs = (get_args(["--env-name", env, "--model", m]) for m in (copy, str(TINY)))
        assert vars(ours) == vars(theirs) | dict(model=copy)
    assert ours.defaults.startswith("the embedded models: the model's hidden size is 64")
    assert get_args(["--model", copy, "--lr", "0.5"]).lr == 0.5


@pytest.mark.parametrize(
    ("config", "whose", "size"),
    [
        (json.dumps({"hidden_size": NARROW - 1}), "the embedded models", "511"),
        (json.dumps({"hidden_size": NARROW}), "SmolLM2-135M", "512"),
        (json.dumps({"hidden_size": SLIM - 1}), "SmolLM2-135M", "639"),
        (json.dumps({"hidden_size": SLIM}), "the paper", "640"),
        (json.dumps({"hidden_size": "64"}), "the paper", "unknown"),
        ("[64]", "the paper", "unknown"),
        ("{", "the paper", "unknown"),
    ],
)
def test_the_size_decides_between_sets_of_defaults(config, whose, size, tmp_path):
    (tmp_path / "config.json").write_text(config)
    args = get_args(["--model", str(tmp_path)])
    assert args.defaults == f"{whose}: the model's hidden size is {size}"
    assert args.lr == {"the embedded models": 2e-4, "SmolLM2-135M": 2e-5, "the paper": 1e-6}[whose]


def test_defaults_are_explained_where_a_model_is_typed():
    assert get_args([]).defaults is None
    assert get_args(MODEL).defaults == ("the paper: the model's hidden size is unknown")


def make_run(run: Path, **changes) -> Path:
    """A run's directory, as far as the command line looks into it."""
    shutil.copytree(TINY, run / "model")
    (run / "args.json").write_text(json.dumps({"args": vars(get_args([])) | changes}, default=str))
    return run


def test_a_run_stands_for_the_model_that_it_saved(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    for flags in ([], ["--eval-only"]):
        args = get_args(["--model", f"{run}/", *flags])
        assert Path(args.model) == run / "model" and args.lr == 2e-4
    assert Path(get_args(["--model", str(run / "model")]).model) == run / "model"
    shutil.rmtree(run / "model")
    with pytest.raises(SystemExit):
        get_args(["--model", str(run)])
    assert f"argument --model: the run {run} has saved no model yet" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_settings_whatever_the_size_of_its_model(tmp_path):
    before = make_run(tmp_path / "before")
    saved = dict(model=str(before / "model"), lr=0.25, defaults="the paper: of that time")
    run = make_run(tmp_path / "run", **saved)
    args = get_args(["--resume", str(run)])
    assert (args.model, args.lr, args.defaults) == tuple(saved.values())
    args = get_args(["--resume", str(run), "--model", str(before), "--eval-only"])
    assert args.model == saved["model"]  # the same model by its other name
    # runs of earlier versions do not say whose defaults they took
    described = json.loads((run / "args.json").read_text())
    del described["args"]["defaults"]
    (run / "args.json").write_text(json.dumps(described))
    assert get_args(["--resume", str(run)]).lr == 0.25


@pytest.mark.parametrize(
    ("name", "value"),
    [("env_name", 7), ("eval_episodes", "12"), ("lr", "x"), ("lr", True), ("eval_only", 1),
     ("kl_in", "advantage"), ("kl_in", []), ("prompts", [1]), ("num_turns", 2.5), ("clip", None)],
)  # fmt: skip
def test_a_setting_of_another_kind_is_refused_in_a_line(name, value, tmp_path, capsys):
    run = make_run(tmp_path / "run", **{name: value})
    for words in ([], ["--eval-only"]):
        with pytest.raises(SystemExit) as end:
            get_args(["--resume", str(run), *words])
        line = capsys.readouterr().err
        assert end.value.code == 2 and line.count("\n") == 1
        assert f"--resume {run}: its args.json: {name} cannot be {value!r}" in line


@pytest.mark.parametrize(
    "words",
    ["--clip turn:0.02", "--clip 0.1:0.3", "--value-clip inf", "--num-turns 9", "--lr 0",
     "--template-kwargs {}", "--env-workers 2", "--gradient-checkpointing", "--kl-target 1"],
)  # fmt: skip
def test_settings_are_of_the_same_kind_when_they_are_read_again(words, tmp_path):
    args = get_args([*MODEL, *words.split()])
    run = make_run(tmp_path / "run", **vars(args))
    assert vars(get_args(["--resume", str(run)])) == vars(args) | {"run_dir": run, "resume": run}


def test_a_run_of_an_earlier_version_is_only_evaluated(tmp_path, capsys):
    run = make_run(tmp_path / "run", kl_estimator="k3", lr=0.25)
    with pytest.raises(SystemExit) as end:
        get_args(["--resume", str(run)])
    line = capsys.readouterr().err
    assert end.value.code == 2 and line.count("\n") == 1
    assert "an earlier version made this run (--kl-estimator)" in line
    args = get_args(["--resume", str(run), "--eval-only"])
    assert args.lr == 0.25 and not hasattr(args, "kl_estimator")


@pytest.mark.parametrize(
    "words", ["--seed 7", "--w-epoch 9", "--w-lr 0.5", "--kl-coef 5 --kl-target 0.01"]
)
def test_a_resumed_run_refuses_what_could_no_longer_act(words, tmp_path, capsys):
    run = make_run(tmp_path / "run")
    command = ["--resume", str(run), *words.split()]
    if "seed" not in words:
        assert get_args(command)  # killed before its first checkpoint: it begins again
    (run / "checkpoints" / "update-000001").mkdir(parents=True)
    shutil.copy(run / "args.json", run / "checkpoints" / "update-000001")
    with pytest.raises(SystemExit):
        get_args(command)
    assert f"with {words.split()[0]}" in capsys.readouterr().err
    assert get_args([*command[:2], "--kl-coef", "5"]).kl_coef == 5  # a constant one is replaced


def test_typed_flags_win_over_recipes():
    args = get_args(["--env-name", "crafter", *MODEL, "--n-env", "8", "--value-clip", "0.5"])
    assert (args.n_env, args.value_clip, args.e_len) == (8, 0.5, 16)
    # 8 x 16 = 128 turns: the family's minibatch of 1024 becomes the whole batch
    assert args.minibatch == 128


# estimator -> what its publication says where ours is other
PUBLISHED = {
    "token-gae": {},
    "turn-gae": dict(first_token_weight=math.inf),
    "rloo": dict(kl_coef=0.03),
    "grpo": dict(kl_coef=0.04, kl_in="loss"),
    "gigpo": dict(kl_coef=0.01, kl_in="loss", gamma_step=0.95),
}
NO_CRITIC = dict(critic_layers=0, w_epoch=0)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("model", [MODEL, ["--model", str(TINY)]])
def test_estimators_bring_their_published_settings(name, model):
    grouped = name in ("rloo", "grpo", "gigpo")
    flags = ["--group-size", "8"] if grouped else []
    parsed = get_args(["--advantages", name, *flags, *model])
    assert parsed.update.no_critic == grouped and parsed.update.whiten == (not grouped)
    args, plain = vars(parsed), vars(get_args(model))
    changed = {k: args[k] for k in args if args[k] != plain[k]}
    expected = PUBLISHED[name] | (NO_CRITIC if grouped else {}) | {"advantages": name}
    if grouped:
        expected |= dict(group_size=8)
    assert changed == expected


def test_typed_flags_win_over_published_settings():
    flags = "--advantages gigpo --group-size 4 --kl-in reward --gamma-step 0.9"
    args = get_args([*flags.split(), *MODEL])
    assert (args.kl_in, args.kl_coef, args.gamma_step) == ("reward", 0.01, 0.9)


@pytest.mark.parametrize(
    ("attributes", "critic", "whiten"),
    [
        ("", True, True),
        ("own.critic = False", False, False),
        ("own.critic, own.whiten = False, True", False, True),
        ("own.whiten = False", True, False),
    ],
)
def test_a_users_estimator_says_what_it_needs(attributes, critic, whiten, tmp_path, monkeypatch):
    (tmp_path / "traits.py").write_text(f"def own(batch): ...\n{attributes}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "traits", raising=False)
    args = get_args(["--advantages", "traits:own", *MODEL])
    assert (args.update.no_critic, args.update.whiten) == (not critic, whiten)
    assert (args.critic_layers, args.w_epoch) == ((2, 40) if critic else (0, 0))


def test_a_resumed_run_keeps_its_critic(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    assert get_args(["--resume", str(run), "--advantages", "token-gae"]).advantages == "token-gae"
    with pytest.raises(SystemExit):
        get_args(["--resume", str(run), "--advantages", "grpo", "--group-size", "8"])
    assert "--advantages grpo (was dual-gae)" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--critic-layers 0", "--critic-lr 1", "--value-clip 1",
                                  "--w-epoch 2", "--w-iter 1", "--use-proper-time-limits",
                                  "--first-token-weight 3"])  # fmt: skip
def test_without_a_critic_its_flags_are_refused(flag, capsys):
    words = ["--advantages", "rloo", "--group-size", "8", *flag.split(), *MODEL]
    with pytest.raises(SystemExit):
        get_args(words)
    message = capsys.readouterr().err
    assert f"without a critic there is nothing for {flag.split()[0]} to set" in message
    assert message.count("\n") == 1


def test_greedy_is_for_evaluation():
    assert get_args(["--temperature", "0", "--eval-only"]).temperature == 0


def test_a_short_run_evaluates_its_initial_model_unless_the_interval_is_longer():
    assert get_args(["--num-updates", "3", *MODEL]).eval_interval == 3
    assert get_args(["--num-updates", "3", "--eval-interval", "4", *MODEL]).eval_interval == 4


@pytest.mark.parametrize(
    ("flags", "reference", "optimizer"),
    [
        ("", "device", False),
        ("--kl-coef 0", "none", False),
        ("--zero-stage 3", "sharded", False),
        ("--zero-stage 3 --train lora:2", "device", False),
        ("--offload reference", "host", False),
        ("--offload optimizer --zero-stage 1", "device", True),
        ("--offload both --zero-stage 3", "host", True),
    ],
)
def test_where_the_reference_and_the_optimizer_are(flags, reference, optimizer):
    args = get_args([*flags.split(), *MODEL])
    assert (args.update.reference, args.update.offload_optimizer) == (reference, optimizer)


@pytest.mark.parametrize(
    ("typed", "kept", "rank", "layers"),
    [("all", "all", 0, 0), ("lora:08", "lora:8", 8, 0), ("top:2", "top:2", 0, 2)],
)
def test_what_is_trained(typed, kept, rank, layers):
    args = get_args(["--train", typed, *MODEL])
    assert (args.train, args.update.lora_rank, args.update.top_layers) == (kept, rank, layers)
    assert args.lr == (1e-4 if rank else 1e-6)


@pytest.mark.parametrize("wrong", ["", "top", "top:", "top:-1", "top:1.5", "lora:0", "lora:²", "8"])
def test_what_cannot_be_trained(wrong, capsys):
    with pytest.raises(SystemExit):
        get_args(["--train", wrong])
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "is not of the form all, lora:RANK or top:LAYERS" in line


def test_the_number_of_flags_has_a_bound(capsys):
    """The bound is never raised: a new flag takes the place of another one."""
    with pytest.raises(SystemExit):
        get_args(["--help"])
    flags = set(re.findall(r"^ +(?:-h, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert flags == {spelled(name) for name in paper()} | {"--help"}
    assert len(flags - {"--help"}) <= 65


@pytest.mark.parametrize("flag", ["--dry-run-memory", "--show-recipe", "--packed", "--merge-turns",
                                  "--reference", "--offload-optimizer", "--skip-first-eval",
                                  "--whiten", "--no-critic", "--value-grad-trunk", "--env-threads",
                                  "--env-timeout", "--lora-rank"])  # fmt: skip
def test_a_flag_of_earlier_versions_is_unknown(flag, capsys):
    with pytest.raises(SystemExit):
        get_args([flag])
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and f"unrecognized arguments: {flag}" in line


def test_crafter_lives_in_workers_in_the_real_run():
    # not in the embedded one, which can be repeated to the bit
    assert get_args(["--env-name", "crafter", *MODEL]).env_workers == WORKERS <= 8
    assert get_args(["--env-name", "crafter", *MODEL, "--n-env", "1"]).env_workers <= 1
    assert get_args(["--env-name", "crafter", *MODEL, "--env-workers", "3"]).env_workers == 3
    assert get_args(["--env-name", "crafter", "--model", str(TINY)]).env_workers == 0
    assert get_args(["--env-name", "babyai-goto", *MODEL]).env_workers == 0


@pytest.mark.parametrize("model", [MODEL, ["--model", str(TINY)]])
def test_each_agent_has_a_process_where_memory_allows(model, monkeypatch):
    monkeypatch.setitem(recipes.FAMILIES["agent"], "env_workers", 40)
    monkeypatch.setitem(recipes.EMBEDDED_FAMILIES["agent"], "env_workers", 40)
    agent = ["--env-name", "agent:my:solve", *model]
    assert get_args(agent).env_workers == 32  # --n-env
    assert get_args([*agent, "--n-env", "64"]).env_workers == 40
    for typed in ("2", "0", "threads:8"):
        assert str(get_args([*agent, "--env-workers", typed]).env_workers) == typed


@pytest.mark.parametrize(("ranks", "processes"), [(1, 32), (4, 8)])
def test_agents_take_a_quarter_of_the_free_memory(ranks, processes, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    lines = "MemTotal:       99999999 kB\nMemAvailable:   12792968 kB\n"  # 13.1 GB / 4 / 100 MB
    monkeypatch.setattr("builtins.open", mock_open(read_data=lines))
    assert recipes.agent_workers() == processes
    monkeypatch.setattr("builtins.open", Mock(side_effect=FileNotFoundError))  # macOS
    assert recipes.agent_workers() == 0


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("3", (3, 0, 300)),
        ("threads:4", (0, 4, 300)),
        ("0,timeout=2.5", (0, 0, 2.5)),
        ("threads:4,timeout=inf", (0, 4, math.inf)),
    ],
)
def test_env_workers_decide_where_environments_run(typed, meant):
    assert execution(get_args(["--env-workers", typed, *MODEL]).env_workers) == meant


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("threads:33", "--env-workers threads:33 is more than --n-env 32"),
        *((typed, f"argument --env-workers: {typed!r} is not of the form {FORMS}")
          for typed in ("-1", "two", "threads:", "thread:2", "2,timeout=0", "2,timeout=nan",
                        "2,timeout=x", "2,3", "1e3")),
    ],
)  # fmt: skip
def test_unknown_env_workers_are_refused(typed, message, capsys):
    with pytest.raises(SystemExit):
        get_args(["--env-workers", typed])
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_a_resumed_run_moves_between_workers_and_threads(tmp_path):
    saved = vars(get_args(["--env-workers", "2"])) | dict(run_dir=None)
    (tmp_path / "args.json").write_text(json.dumps({"args": saved}))
    args = get_args(["--resume", str(tmp_path), "--env-workers", "threads:4"])
    assert args.env_workers == "threads:4"
    args = get_args(["--resume", str(tmp_path)])
    assert args.env_workers == 2


def test_template_arguments_are_a_json_object(capsys, tmp_path):
    args = get_args([*MODEL, "--template-kwargs", '{"enable_thinking": false}'])
    assert args.template_kwargs == {"enable_thinking": False}
    for bad, message in (
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"a b": 1}', "is "),
        ('{"tools": 1}', "in each"),
        (r'{"a": "\ud83d"}', "is not JSON"),  # half of a character
        ('{"a": "\udcff"}', "is not JSON"),  # a byte that is no UTF-8
        ('{"chat_template": 1}', "must name a file"),
        ('{"chat_template": "nowhere.jinja"}', "nowhere.jinja: No such file"),
    ):
        with pytest.raises(SystemExit):
            get_args([*MODEL, "--template-kwargs", bad])
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    # a template's text is kept, which args.json and `turnwise recipe` show and read again
    (tmp_path / "own.jinja").write_text("{{ messages }}\n")
    for named in (str(tmp_path / "own.jinja"), "{{ messages }}\n"):
        typed = json.dumps({"chat_template": named})
        args = get_args([*MODEL, "--template-kwargs", typed])
        assert args.template_kwargs == {"chat_template": "{{ messages }}\n"}


def test_help_is_there_at_once():
    """main.py imports nothing heavy before it answers, nor before it tells a mistake."""
    for words, code in ("main.py --help", 0), ("-m arguments", 0), ("main.py --model m --lr 9", 2):
        timed = [sys.executable, "-X", "importtime", *words.split()]
        done = subprocess.run(timed, cwd=ROOT, capture_output=True, text=True)
        imported = {line.split()[-1] for line in done.stderr.splitlines() if "import time" in line}
        assert done.returncode == code and "argparse" in imported
        assert not imported & {"torch", "transformers", "tensorboard", "matplotlib"}
        assert "None" not in done.stdout  # no flag has such a default


def test_help_shows_the_defaults_of_the_typed_environment(capsys):
    with pytest.raises(SystemExit) as end:
        get_args(["--env-name", "babyai-goto", "--model", "org/name", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0 and "number of PPO updates (default: 300)" in shown


def test_the_names_of_environments_are_printed():
    command = [sys.executable, "-m", "envs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"babyai-goto", "crafter", "toy"} <= {*done.stdout.splitlines()}


@pytest.mark.parametrize(
    "line",
    ["", "--env-name crafter", "--env-name crafter --model org/m", "--advantages turn-gae",
     "--advantages grpo --group-size 8", "--advantages rloo --group-size 8 --model org/m",
     "--env-name agent:examples.openai_agent:solve", "--kl-coef 0 --train lora:4",
     "--eval-only --temperature 0", "--template-kwargs '{\"enable_thinking\": false}'"],
)  # fmt: skip
def test_the_recipe_is_a_command_line(line, capsys):
    assert arguments.main(shlex.split(line)) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("python main.py")
    again = get_args(shlex.split(shown.replace("\\\n", ""))[2:])
    args = get_args(shlex.split(line))
    assert vars(again) | {"defaults": None} == vars(args) | {"defaults": None}


def test_other_programs_import_nothing_heavy_before_they_parse():
    modules = "reports.viewer, reports.curves, reports.evaluations, reports.push"
    modules += ", paper.reproduce, reports.serve, models.make"
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {"torch", "transformers", "matplotlib", "huggingface_hub", "wandb"}
    assert not heavy & set(done.stdout.split())
