"""Bad command lines, files and environments: one line that says what is wrong, exit code 2, no
traceback, nothing written and nothing lost. And what looks bad, but is none of the program's
business: strange texts in observations and responses, odd names.

Every row is a command line that `main.program` runs in a directory of its own. There, ./m is a copy
of the embedded model, which a row may break. SMALL comes first: what a row types counts more.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest
import real_runs
import torch
from bad_envs import STRANGE
from safetensors.torch import load_file, save_file

import main
from ppo.engines.lockstep import TransformersEngine
from recipes import TINY

ROOT = Path(__file__).resolve().parents[1]
SMALL = """--model ./m --env-name toy --n-env 2 --e-len 2 --minibatch 4 --num-updates 1 --w-epoch 0
--response-limit 2 --eval-episodes 1 --eval-interval 0 --engine transformers"""
LONG = "n" * 300  # no file system has names of this length


@pytest.fixture
def here(tmp_path, monkeypatch):
    shutil.copytree(TINY, tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def run(flags: str) -> int:
    try:
        return main.program([*SMALL.split(), *flags.split()])
    except SystemExit as exit:  # argparse ends the program by itself
        return exit.code


def contents(folder: Path) -> dict:
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def check_refused(flags: str, message: str, capsys) -> None:
    assert run(flags) == 2
    out, err = capsys.readouterr()
    assert err.startswith("main.py: error: ") and err.count("\n") == 1, err
    assert message in err and "Traceback" not in err
    return out


# ---- command lines ----------------------------------------------------------------------------

FLAGS = [
    # typed, and what the line must say
    ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
    ("toy", "unrecognized arguments: toy\n"),
    ("--n_env 4", "unrecognized arguments: --n_env 4; did you mean --n-env?\n"),
    ("--num-envs=4", "did you mean --n-env?\n"),
    ("--use-proper-time-limits yes", "unrecognized arguments: yes"),
    ("--n 2", "ambiguous option: --n could match --n-env, --num-updates, --num-tu"),
    ("--n-env", "argument --n-env: expected one argument"),
    # types
    ("--n-env many", "argument --n-env: invalid int value: 'many'"),
    ("--n-env 1e3", "argument --n-env: invalid int value: '1e3'"),
    ("--e-len 2.5", "argument --e-len: invalid int value: '2.5'"),
    ("--seed=", "argument --seed: invalid int value: ''"),
    ("--gamma-step 0,99", "argument --gamma-step: invalid float value: '0,99'"),
    (
        "--engine none",
        "unknown engine 'none'; choices: auto, vllm, vllm-lora, transformers, vllm:2",
    ),
    ("--lr-schedule cosine", "invalid choice: 'cosine' (choose from 'constant', 'linear')"),
    ("--on-invalid stop", "invalid choice: 'stop' (choose from 'default', 'end')"),
    ("--advantages gae", "unknown estimator 'gae'; choices: dual-gae, token-gae, turn-gae, rloo"),
    # ranges
    ("--n-env 0", "--n-env must be from 1 to 1000000000, got 0"),
    ("--n-env 99999999999999999999", "--n-env must be from 1 to 1000000000, got 9999999999999"),
    ("--e-len 0", "--e-len must be from 1"),
    ("--num-updates 0", "--num-updates must be from 1"),
    ("--ppo-epoch 0", "--ppo-epoch must be from 1"),
    ("--minibatch 0", "--minibatch must be from 1"),
    ("--token-budget 0", "--token-budget must be from 1"),
    ("--prompt-limit 0", "--prompt-limit must be from 1"),
    ("--response-limit 0", "--response-limit must be from 1"),
    ("--eval-episodes 0", "--eval-episodes must be from 1"),
    ("--save-interval 0", "--save-interval must be from 1"),
    ("--max-episode-steps 0", "--max-episode-steps must be from 1"),
    ("--w-iter 0", "--w-iter must be from 1"),
    ("--w-epoch -1", "--w-epoch must be from 0 to 1000000000, got -1"),
    ("--memory-length -1", "--memory-length must be from 0"),
    ("--memory-length 99999999999999999999", "--memory-length must be from 0"),
    ("--env-workers -1", "--env-workers: '-1' is not of the form K processes, threads:K"),
    ("--env-workers threads:many", "--env-workers: 'threads:many' is not of the form"),
    ("--eval-interval -1", "--eval-interval must be from 0"),
    ("--log-envs -1", "--log-envs must be from 0"),
    ("--critic-layers -1", "--critic-layers must be from 0"),
    ("--seed -1", "--seed must be from 0 to 2**32 - 1, got -1"),
    ("--seed 4294967296", "--seed must be from 0 to 2**32 - 1, got 4294967296"),
    ("--gamma-step 1.01", "--gamma-step must be in [0, 1], got 1.01"),
    ("--gamma-token nan", "--gamma-token must be in [0, 1], got nan"),
    ("--lam-step inf", "--lam-step must be in [0, 1], got inf"),
    ("--lam-token -0.5", "--lam-token must be in [0, 1], got -0.5"),
    ("--lr -0.1", "--lr must be in [0, 1], got -0.1"),
    ("--critic-lr nan", "--critic-lr must be in [0, 1], got nan"),
    ("--w-lr 1e400", "--w-lr must be in [0, 1], got inf"),
    ("--w-fraction 0", "--w-fraction must be in (0, 1], got 0.0"),
    ("--gpu-memory-utilization 0", "--gpu-memory-utilization must be in (0, 1], got 0.0"),
    ("--kl-coef -0.1", "--kl-coef must be at least 0 and finite, got -0.1"),
    ("--entropy-coef inf", "--entropy-coef must be at least 0 and finite, got inf"),
    ("--format-penalty nan", "--format-penalty must be at least 0 and finite, got nan"),
    ("--kl-target 0", "--kl-target must be above 0 and finite, got 0.0"),
    ("--first-token-weight 0", "--first-token-weight must be above 0 (inf: first tokens alone), "),
    ("--group-size -1", "--group-size must be from 0 to 1000000000, got -1"),
    ("--num-turns 0", "--num-turns must be from 1"),
    ("--clip 0", "--clip: '0' is not of the form X or LOW:HIGH above 0, or turn: or"),
    ("--value-clip -1", "--value-clip must be above 0 (inf: off), got -1.0"),
    ("--env-workers 2,timeout=0", "--env-workers: '2,timeout=0' is not of the form"),
    ("--max-grad-norm nan", "--max-grad-norm must be above 0 (inf: off), got nan"),
    ("--temperature inf", "--temperature must be 0 or from 0.001 to 1000, got inf"),
    ("--temperature 1e-320", "--temperature must be 0 or from 0.001 to 1000, got 1e-320"),
    # what does not go together
    ("--endpoint-sampling untrained --engine transformers", "untrained does not go with --engine"),
    ("--endpoint-sampling untrained", "untrained does not go with --engine transformers"),
    ("--endpoint-sampling untrained --group-size 2", "untrained does not go with --group-size"),
    ("--upstream localhost:8000/v1", "localhost:8000/v1: a URL begins with http:// or https://"),
    ("--temperature 0", "--temperature must be above 0 in training; 0 (greedy) is for --eval-only"),
    ("--minibatch 3", "n_env x e_len = 2 x 2 = 4 turns do not divide into minibatches of 3"),
    # what would change nothing: SMALL has training flags
    (
        "--eval-only",
        "--eval-only trains nothing; leave --e-len, --eval-interval, --minibatch, --num",
    ),
    ("--log-envs 3", "--log-envs 3 is more than --n-env 2"),
    ("--upstream http://localhost:8000/v1", "--upstream is for agents, and toy is none; leave it"),
    (
        "--env-name agent:examples.openai_agent:solve --history-thinking strip",
        "an agent's program decides what it sends again; leave --history-thinking out",
    ),
    (
        "--token-budget 1025",
        "--token-budget 1025 is below a turn of --prompt-limit + --response-lim",
    ),
    ("--minibatch 8", "n_env x e_len = 2 x 2 = 4 turns do not divide into minibatches of 8"),
    ("--n-env 1000000", "1000000 x 2 = 2000000 turns are more than the 1000000 that fit into mem"),
    ("--w-epoch 999999", "= 4 turns (999999 times for the warm-up) are more than the 1000000"),
    ("--env-workers 8", "--env-workers 8 is more than --n-env 2"),
    ("--env-workers threads:8", "--env-workers threads:8 is more than --n-env 2"),
    ("--kl-target 0.1 --kl-coef 0", "--kl-target scales --kl-coef, which must be above 0"),
    # estimators, groups and critics
    ("--group-size 3", "--group-size 3 does not divide --n-env 2"),
    ("--advantages rloo", "--advantages rloo compares whole episodes that begin from one seed: it"),
    ("--advantages grpo --group-size 1", "it needs --group-size 2 or more, got 1"),
    ("--no-critic", "unrecognized arguments: --no-critic"),
    ("--advantages token-gae --gamma-step 1", "token-gae has no --gamma-step; leave it out"),
    ("--advantages turn-gae --lam-token 0", "turn-gae has no --lam-token; leave it out"),
    ("--num-turns 9 --lr-schedule linear", "--lr-schedule linear falls to 0 over --num-updates"),
    ("--offload reference --kl-coef 0", "--kl-coef 0 has no reference for --offload reference"),
    (
        "--offload both --train lora:2",
        "--train lora:2 has no copy as a reference for --offload both",
    ),
    ("--train top:0", "'top:0' is not of the form all, lora:RANK or top:LAYERS"),
    ("--train top:2 --zero-stage 3", "--train top:2 needs --zero-stage 0, 1 or 2"),
    ("--offload optimizer", "--offload optimizer needs --zero-stage 1, 2 or 3"),
    ("--memory full --memory-length 3", "--memory full shows every turn; leave --memory-length"),
    ("--memory periodic --memory-length 0", "memory length must be >= 1 for a periodic memory"),
    ("--resume a --run-dir b", "--resume goes on in its own directory; leave --run-dir out"),
    ("--critic-layers 3", "--critic-layers must be 0..2 for this model, got 3"),
    ("--prompt-limit 20", "prompt limit 20 is below the system prompt and the current observation"),
    ("--prompt-limit 32768", "it has 32768 positions, --prompt-limit + --response-limit are 32770"),
    # names of environments and memories
    ("--env-name babyai-gotoo", "unknown environment 'babyai-gotoo'; nearest first: babyai-goto, "),
    ("--env-name babyai", "unknown environment 'babyai'; nearest first: babyai-"),
    ("--env-name baba-", "unknown environment 'baba-'; nearest first: bab"),
    ("--env-name :", "unknown environment ':'; the form is module:EnvId, as in my_envs:MyEnv"),
    ("--env-name .envs:Env-v0", "unknown environment '.envs:Env-v0'; the form is module:EnvId"),
    ("--env-name bad_envs:", "unknown environment 'bad_envs:'; the form is module:EnvId"),
    ("--env-name no_such_module:Env-v0", "environment 'no_such_module:Env-v0' cannot be imported"),
    ("--env-name bad_envs:Env-v0", "'bad_envs:Env-v0' cannot be made: Environment `Env` doesn't"),
    ("--env-name gymnasium:CartPole-v1", "actions must both be gymnasium.spaces.Text"),
    ("--env-name gymnasium:CartPole-v1 --env-workers 1", "must both be gymnasium.spaces.Text"),
    (
        "--memory newest",
        "unknown memory 'newest'; choices: window, action, periodic, ",
    ),
    ("--memory .memory:Memory", "unknown memory '.memory:Memory'; choices: window"),
    ("--memory no_such_module:Memory", "memory 'no_such_module:Memory' cannot be imported"),
    ("--memory json:Memory", "module 'json' has no 'Memory'; choices: window"),
    ("--memory collections:deque", "must be a class with reset, update, messages; choices: window"),
    # what an environment says
    (
        "--env-name bad_envs:Nothing-v0",
        "Nothing-v0.reset returned the observation ''; it must",
    ),
    ("--env-name bad_envs:Nothing-v0 --env-workers 1", "the observation ''; it must be a text"),
    (
        "--env-name bad_envs:Number-v0",
        "Number-v0.reset returned the observation 3; it must be",
    ),
    ("--env-name bad_envs:Megabyte-v0", "(750132 tokens); raise --prompt-limit"),
]


@pytest.mark.parametrize(("flags", "message"), FLAGS, ids=[flags for flags, _ in FLAGS])
def test_command_lines(flags, message, here, capsys):
    before = contents(here)
    assert check_refused(flags, message, capsys) == ""
    assert contents(here) == before  # neither runs/ nor anything else


# ---- files ------------------------------------------------------------------------------------


def write(path: str, content: str = "results"):
    def set_up():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(content)

    return set_up


def garbage(name: str):
    return lambda: Path("m", name).write_bytes(b"\x00\xff{garbage")


def remove(name: str):
    return lambda: Path("m", name).unlink()


def cut(name: str, size: int):
    return lambda: os.truncate(Path("m", name), size)


def config(name: str = "config.json", **changes):
    path = Path("m", name)
    return lambda: path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def template(text: str):
    return lambda: Path("m/chat_template.jinja").write_text(text)


def tensors(change):
    def set_up():
        weights = change(load_file("m/model.safetensors"))
        save_file(weights, "m/model.safetensors", metadata={"format": "pt"})

    return set_up


def small_vocabulary():
    config(vocab_size=300)()

    def rows(name, x):
        return x[:300].clone() if "embed" in name else x

    tensors(lambda weights: {name: rows(name, x) for name, x in weights.items()})()


def no_end_of_turn():
    nothing = dict(eos_token_id=None, eos_token=None)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        config(name, **nothing)()
    template(PLAIN)()


ANOTHER_MODEL = dict(model_type="gpt2", n_layer=1, n_embd=64, n_head=2, vocab_size=386)
OPEN_TEMPLATE = "{% for m in messages %}{{ m.role "
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('No system') }}{% endif %}"
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
ONLY_THE_LAST = "user: {{ messages[-1].content }} assistant:"

FILES = [
    # what is wrong, how it came to be, typed, and what the line must say
    ("model: nothing there", None, "--model ./none",
     "--model ./none: no such directory (give one, or a hub name as org/model)"),
    ("model: no name", None, "--model none", "--model none: no such directory (give one, or a hub"),
    ("model: on no hub", None, "--model org/none", "(no such directory here, and from the hub:)"),
    ("model: a file", None, "--model m/config.json", "--model m/config.json: no such directory"),
    ("model: empty", lambda: Path("empty").mkdir(), "--model ./empty", "cannot load it: Unrecogni"),
    ("model: long name", None, f"--model ./{LONG}", "no such directory"),
    ("model: an adapter", write("m/adapter_config.json", "{}"), "", "./m is an adapter without"),
    ("model: a run without one", write("run/args.json", "{}"), "--model run",
     "argument --model: the run run has saved no model yet"),
    ("no config", remove("config.json"), "", "cannot load it: Unrecognized model in ./m. Should"),
    ("no weights", remove("model.safetensors"), "", "no file named model.safetensors"),
    ("no tokenizer", remove("tokenizer.json"), "",
     "its tokenizer or chat template drops system, user, assistant messages"),
    ("no template", remove("chat_template.jinja"), "", "no chat template; use an instruct model"),
    ("garbage config", garbage("config.json"), "", "'./m/config.json' is not a valid JSON"),
    ("garbage weights", garbage("model.safetensors"), "", "cannot load it: Error while deserial"),
    ("garbage tokenizer", garbage("tokenizer.json"), "", "cannot load it: 'utf-8' codec can't"),
    ("garbage template", garbage("chat_template.jinja"), "", "cannot load it: 'utf-8' codec can't"),
    ("torn tokenizer", cut("tokenizer.json", 5000), "", "--model ./m: cannot load it: "),
    ("torn weights", cut("model.safetensors", 200_000), "", "metadata, file not fully covered"),
    ("weights of 0 bytes", cut("model.safetensors", 0), "", "header too small"),
    ("config: a list", lambda: Path("m/config.json").write_text("[]"), "", "cannot load it: "),
    ("config: type", config(hidden_size="many"), "", "'hidden_size' expected int, got str"),
    ("config: no such model", config(model_type="none"), "", "has model type `none` but"),
    ("config: own code", config(model_type="none", auto_map={"AutoConfig": "code.Config"}), "",
     "--model ./m: cannot load it: The repository ./m contains custom code"),
    ("config: no LM", config(model_type="t5"), "", "cannot load it: Unrecognized configuration"),
    ("config: another model", config(**ANOTHER_MODEL), "", "its weights do not fit its config.js"),
    ("config: wider", config(hidden_size=128), "", "its weights do not fit its config.json: 26 mi"),
    ("config: deeper", config(num_hidden_layers=3, layer_types=["full_attention"] * 3), "",
     "do not fit its config.json: 12 missing or of another shape (model.layers.2."),
    ("weights: one missing", tensors(lambda weights: dict(list(weights.items())[:-1])), "",
     "its weights do not fit its config.json: 1 missing or of another shape"),
    ("weights: not finite", tensors(lambda weights: {n: x / 0 for n, x in weights.items()}), "",
     "it has weights that are not finite"),
    ("weights: fewer tokens", small_vocabulary, "",
     "its embeddings only up to 299"),
    ("template: open", template(OPEN_TEMPLATE), "", "its chat template fails on system, user and"),
    ("template: no system", template(NO_SYSTEM), "", "assistant messages: No system"),
    ("template: empty", template(""), "", "drops system, user, assistant messages"),
    ("template: deaf", template(ONLY_THE_LAST), "", "drops system, assistant messages"),
    ("no end of turn", no_end_of_turn, "", "its tokenizer has no end-of-turn token"),
    # as root no permission is missing: these are places where nobody can write
    ("run dir: used", write("used/file"), "--run-dir used",
     "used is not empty, and there is no run in it; name another --run-dir"),
    ("run dir: a file", write("file"), "--run-dir file", "file is a file; name a directory"),
    ("run dir: in a file", write("file"), "--run-dir file/run", "cannot write to file/run: Not a"),
    ("run dir: a device", None, "--run-dir /dev/null", "/dev/null is a file; name a directory"),
    ("run dir: in /proc", None, "--run-dir /proc/run", "cannot write to /proc/run: No such file"),
    ("run dir: a link to nowhere", lambda: os.symlink("nowhere/run", "link"), "--run-dir link",
     "cannot write to link: File exists"),
    ("run dir: long name", None, f"--run-dir {LONG}", f"{LONG}: File name too long"),
    ("resume: nothing there", None, "--resume none", "no run there (args.json is missing)"),
    ("resume: a file", write("file"), "--resume file", "file is a file; name a directory"),
    ("resume: no run", None, "--resume m", "--resume m: no run there (args.json is missing)"),
    ("resume: long name", None, f"--resume {LONG}", f"{LONG}: File name too long"),
    ("resume: empty args", write("a/args.json", ""), "--resume a", "args.json does not describe"),
    ("resume: other args", write("a/args.json", "{}"), "--resume a", "args.json does not describe"),
    ("resume: list", write("a/args.json", '{"args": [1]}'), "--resume a", "not describe a run"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("set_up", "flags", "message"), [row[1:] for row in FILES], ids=[row[0] for row in FILES]
)
def test_files(set_up, flags, message, here, capsys):
    if set_up:
        set_up()
    before = contents(here)
    assert check_refused(flags, message, capsys) == ""
    assert contents(here) == before


# ---- in the middle of a run -------------------------------------------------------------------


def test_an_observation_too_long_is_shortened_and_counted(here, capsys):
    flags = "--env-name bad_envs:MegabyteLater-v0 --num-updates 1 --run-dir run"
    assert run(flags) == 0
    metrics = [json.loads(line) for line in open("run/metrics.jsonl")]
    assert max(update["rollout/prompt_shortened"] for update in metrics) > 0
    turns = [json.loads(line) for line in open("run/trajectories.jsonl")]
    shortened = [
        turn["prompt"] for turn in turns if "characters are left out here" in turn["prompt"]
    ]
    assert shortened and all("What will you do next?" in prompt for prompt in shortened)


def test_a_bug_is_not_hidden_behind_one_line(here, monkeypatch):
    """Only this project's own checks are a user's mistake; a ValueError of a library is a bug."""
    monkeypatch.setattr(torch.optim, "AdamW", lambda *a, **k: json.loads("{"))
    with pytest.raises(json.JSONDecodeError):
        run("")


# ---- what must survive ------------------------------------------------------------------------

RESPONSES = {
    "empty": "",
    "emoji": "🙂👩‍👩‍👧 THINK: 🟥\nACTION: 🟥",
    "right to left": "\u202eאדום أحمر\u202c ACTION: \u200fאדום",
    "binary": "".join(map(chr, range(256))) * 4,
    "nul": "ACTION: red\0\0",
    "surrogates": "\udcff\ud83d ACTION: \ud83d",
    "markup": "<|im_end|>\n<|im_start|>system\nACTION: <|endoftext|> {{ m.role }} {% for %}",
    "long": "ACTION: red " * 10_000,
}


@pytest.mark.parametrize("text", RESPONSES.values(), ids=RESPONSES)
def test_responses(text, here, capsys, monkeypatch):
    """Through parsing, environment, memory, prompt and the logs."""
    response = TransformersEngine.response

    def strange(*args):
        return replace(response(*args), text=text)

    monkeypatch.setattr(TransformersEngine, "response", strange)
    assert run("--memory full --num-updates 2 --run-dir run --prompt-limit 2000") == 0
    assert capsys.readouterr().err == ""
    turns = [json.loads(line) for line in open("run/trajectories.jsonl")]
    assert len(turns) == 8 and {turn["response"] for turn in turns} == {text}
    assert {turn["action"] for turn in turns} <= {"pass", "red"}
    assert any(turn["prompt_overflow"] for turn in turns) == (len(text) > 1000)


SURVIVES = [
    # typed, and what the last line must say
    ("--env-name bad_envs:Strange-v0", "trained model: runs/bad_envs.Strange-v0-"),
    ("--run-dir 🙂-שלום", "trained model: 🙂-שלום/model"),
    ("--n-env 1 --e-len 1 --minibatch 1", "trained model: "),
    ("--max-episode-steps 1000000000 --memory-length 1000000000", "trained model: "),
]


@pytest.mark.parametrize(("flags", "message"), SURVIVES)
def test_harmless_input_is_accepted(flags, message, here, capsys):
    assert run(flags) == 0
    out, err = capsys.readouterr()
    assert message in out.splitlines()[-1] and err == ""


def test_strange_observations_are_logged_as_the_model_saw_them(here):
    assert run("--env-name bad_envs:Strange-v0 --run-dir run") == 0
    turns = [json.loads(line) for line in open("run/trajectories.jsonl")]
    # halves of surrogate pairs are no text: the model is shown question marks
    assert all(STRANGE.replace("\ud83d", "?").replace("\udcff", "?") in t["prompt"] for t in turns)


# ---- the program itself -----------------------------------------------------------------------

PROCESSES = [
    # typed, exit code, and what it must say
    ("--lr nan", 2, "main.py: error: --lr must be in [0, 1], got nan"),
    ("--model ./torn", 2, "main.py: error: --model ./torn: cannot load it: "),
    ("--run-dir 🙂", 0, r"trained model: \U0001f642/model"),  # where only ASCII can be shown
]


@pytest.mark.parametrize(("flags", "code", "message"), PROCESSES)
def test_errors_of_the_whole_program(flags, code, message, here):
    shutil.copytree("m", "torn")
    os.truncate("torn/model.safetensors", 1000)
    command = [ROOT / "main.py", *SMALL.split(), *flags.split()]
    if code:
        process = real_runs.run(command, here)
    else:
        process = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True,
            env=os.environ | dict(OMP_NUM_THREADS="1", PYTHONIOENCODING="ascii"),
        )  # fmt: skip
    assert process.returncode == code, process.stderr
    assert process.stderr.count("\n") == (1 if code else 0), process.stderr  # nor a progress bar
    assert message in (process.stderr if code else process.stdout.splitlines()[-1])
