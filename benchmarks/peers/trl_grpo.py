"""Trains with TRL's GRPOTrainer on one of our environments, and leaves a run that we can read.

    pip install --target DIR --no-deps trl==1.16.0 datasets==5.2.0 pyarrow pandas dill xxhash \
        multiprocess python-dateutil pytz six
    PYTHONPATH=DIR OMP_NUM_THREADS=1 python -m benchmarks.peers.trl_grpo \
        --env-name tools-calculator --model models/tiny-calculator --seed 1 --run-dir runs/trl

An environment with tools goes through TRL's `environment_factory`: a row is an episode, one
sequence that grows with each call and its result. Others, as BabyAI, go through `rollout_func`: see
`benchmarks.peers.turns`. The run directory gets args.json, metrics.jsonl and the trained model;
`benchmarks.peers.compare` lets main.py judge the model and reads all three.
"""

import functools
import json
import os
import shutil
import sys
import time
from collections import deque
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # it warns of the two interfaces used here

from arguments import get_args
from benchmarks.peers.turns import TurnRollouts
from common.cli import Parser
from envs import make_env
from envs.pool.serial import EpisodeSeeds
from envs.tools.tool_env import ToolEnv
from paper.compared import CURVE_EPISODES

NEEDS = ("trl", "datasets", "pyarrow", "pandas", "dill", "xxhash", "multiprocess", "dateutil")
GROUP = 8  # episodes from one seed
EPISODES, TURNS = 64, 256  # rows of a batch: episodes of an environment with tools, else turns


def main(argv: list[str] | None = None) -> int:
    parser = Parser("benchmarks.peers.trl_grpo", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--env-name", default="tools-calculator", help="one with tools, or a game in text")
    flag("--model", required=True, help="directory of a Hugging Face model")
    flag("--seed", type=int, default=1, help="seed of everything random")
    flag("--turns", type=int, default=20_480, help="environment turns after which training ends")
    flag("--lr", type=float, default=4e-4, help="constant learning rate")
    flag("--epochs", type=int, default=1, help="passes over a batch, TRL's num_iterations")
    flag("--minibatches", type=int, default=1, help="optimizer steps of a pass")
    flag("--beta", type=float, default=0.0, help="coefficient of the KL penalty")
    flag("--run-dir", type=Path, required=True, help="new directory of the run")
    args = parser.parse_args(argv)
    if missing := [name for name in NEEDS if find_spec(name) is None]:
        parser.error(
            f"{', '.join(missing)} missing: install TRL into a folder and name it in "
            "PYTHONPATH; the docstring of benchmarks/peers/trl_grpo.py has the command"
        )
    if args.run_dir.exists():
        parser.error(f"{args.run_dir} exists: name another --run-dir")
    train(args)
    return 0


def train(args) -> None:
    import_datasets()
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOTrainer

    class Steps(TrainerCallback):
        """Tells the record when the updates of a batch are made."""

        def on_train_begin(self, config, state, control, **others):
            record.start()

        def on_step_end(self, config, state, control, **others):
            if state.global_step % (args.epochs * args.minibatches) == 0:
                control.should_training_stop = record.write() >= args.turns

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tools = isinstance(make_env(args.env_name), ToolEnv)
    record = Record(args, EPISODES if tools else TURNS)
    parts = tools_of(args, tokenizer, record) if tools else turns_of(args, tokenizer, record)
    trainer = GRPOTrainer(args.model, processing_class=tokenizer, callbacks=[Steps()], **parts)
    trainer.train()
    trainer.model.save_pretrained(args.run_dir / "model")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(Path(args.model) / file, args.run_dir / "model")


def import_datasets() -> None:
    """`datasets` cannot pickle a type of pyarrow 26 where it wants a fingerprint of its rows, which
    it needs for its cache alone: a random number does."""
    import secrets

    from datasets.fingerprint import Hasher

    Hasher.hash = classmethod(lambda cls, value: secrets.token_hex(8))


class Record:
    """Writes the files of a run in the form of main.py's."""

    def __init__(self, args, rows: int):
        self.turns, self.updates, self.last = 0, 0, deque(maxlen=CURVE_EPISODES)
        args.run_dir.mkdir(parents=True)
        self.file = args.run_dir / "metrics.jsonl"
        names = ("trl", "transformers", "datasets", "torch")
        versions = {name: version(name) for name in names}
        known = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
        known |= dict(num_turns=args.turns, n_env=rows, e_len=1, versions=versions)
        text = json.dumps({"args": known, "git": None}, indent=2)
        (args.run_dir / "args.json").write_text(text, encoding="utf-8")

    def start(self) -> None:
        self.worked = time.process_time()

    def played(self, successes: list[bool], turns: int) -> None:
        """Note the episodes of a batch."""
        self.last.extend(successes)
        self.turns += turns

    def write(self) -> int:
        """Write the line of an update; return how many turns have been played."""
        now, self.updates = time.process_time(), self.updates + 1
        line = {"update": self.updates, "turns": self.turns, "time/processor": now - self.worked}
        line["rollout/episodes"] = len(self.last)
        line["rollout/success"] = sum(self.last) / len(self.last)
        self.worked = now
        with self.file.open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)
        print("turns {turns:6d}  success {rollout/success:.2f}".format(**line), flush=True)
        return self.turns


def config(args, rows: int, **others):
    """Return a GRPOConfig. What is not named here or on the command line is TRL's default, but for
    precision and recomputation, which would only slow a small model down on a processor, and for
    Adam's beta, which is ours."""
    from trl import GRPOConfig

    steps = args.epochs * args.minibatches
    return GRPOConfig(
        output_dir=str(args.run_dir), seed=args.seed, learning_rate=args.lr,
        lr_scheduler_type="constant", adam_beta2=0.99, beta=args.beta, num_iterations=args.epochs,
        steps_per_generation=args.minibatches, per_device_train_batch_size=rows // args.minibatches,
        max_steps=steps * args.turns,  # far too many: `Steps` ends the run
        use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none",
        save_strategy="no", logging_strategy="no", disable_tqdm=True, **others,
    )  # fmt: skip


def tools_of(args, tokenizer, record: Record) -> dict:
    """Arguments of GRPOTrainer for an environment with tools."""
    from datasets import Dataset
    from trl.chat_template_utils import qwen3_template

    flags = get_args(["--env-name", args.env_name, "--model", args.model])
    env, seeds = make_env(args.env_name), EpisodeSeeds(args.seed, 0)
    asked = [{"role": "system", "content": env.system}, {"role": "user", "content": ""}]
    count = args.turns // GROUP + EPISODES  # of questions: an episode takes a turn at least
    rows = [{"prompt": asked, "seed": seeds.draw(k)} for k in range(count)]
    tokenizer.response_template = qwen3_template  # how calls are written, for its parser

    def reward(completions, environments, **others) -> list[float]:
        rewards = [env._judge(said) for env, said in zip(environments, completions, strict=True)]
        turns = sum(message["role"] == "assistant" for said in completions for message in said)
        record.played([reward > 0 for reward in rewards], turns)
        return rewards

    limits = dict(max_completion_length=4 * env.max_turns * flags.response_limit,
                  max_tool_calling_iterations=env.max_turns - 1, num_generations=GROUP,
                  generation_kwargs={"max_new_tokens": flags.response_limit})  # fmt: skip
    return dict(
        args=config(args, EPISODES, **limits), reward_funcs=reward,
        train_dataset=Dataset.from_list(rows), environment_factory=class_for(args.env_name),
    )  # fmt: skip


def class_for(name: str) -> type:
    """Return one of our environments with tools as TRL takes it: `reset` returns the question, and
    each other public method is a tool."""

    class Environment:
        def __init__(self):
            self._env = make_env(name)

        def reset(self, seed: int, **row) -> str:
            return self._env.reset(seed=seed)[0]

        def _judge(self, messages: list[dict]) -> float:
            last = messages[-1]
            answered = last["role"] == "assistant" and not last.get("tool_calls")
            return self._env.reward(last["content"]) if answered else 0.0

    for tool, function in make_env(name).toolbox.functions.items():
        setattr(Environment, tool, tool_for(tool, function.__func__))
    return Environment


def tool_for(name: str, function):
    """Return a tool that answers as ours does, also to arguments that are wrong."""

    @functools.wraps(function)  # TRL shows the model its signature and docstring
    def call(self, **arguments) -> str:
        return self._env.toolbox.answer(({"name": name, "arguments": arguments},))[0]

    return call


def turns_of(args, tokenizer, record: Record) -> dict:
    """Arguments of GRPOTrainer for an environment whose prompts are a window over past turns."""
    from datasets import Dataset

    flags = get_args(["--env-name", args.env_name, "--model", args.model])
    play = TurnRollouts(flags, tokenizer, EpisodeSeeds(args.seed, 0), TURNS, GROUP, record)
    limits = dict(max_completion_length=flags.response_limit, num_generations=TURNS,
                  scale_rewards="none")  # fmt: skip
    return dict(
        args=config(args, TURNS, **limits), rollout_func=play,
        reward_funcs=lambda completions, advantage, **others: advantage,
        train_dataset=Dataset.from_list([{"prompt": ""}]),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
