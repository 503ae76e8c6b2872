"""Trains with TRL's GRPOTrainer on one of our environments.

    pip install --target DIR --no-deps trl==1.16.0 datasets==5.2.0 pyarrow pandas dill xxhash \
        multiprocess python-dateutil pytz six
    PYTHONPATH=DIR OMP_NUM_THREADS=1 python -m benchmarks.peers.trl_grpo \
        --env-name tools-calculator --model models/tiny-calculator --seed 1 --run-dir runs/trl

TRL's `environment_factory` takes an environment with tools: a row of a batch is an episode, one
sequence that grows with each tool call and its result. Other environments, such as BabyAI, use
`rollout_func` (`benchmarks.peers.turns`). The run directory gets args.json, metrics.jsonl and the
trained model, which `benchmarks.peers.compare` reads after main.py has evaluated the model. Further
flags are main.py's, such as --prompts and --memory.
"""

import functools
import os
import secrets
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # its interfaces used here warn

from arguments import get_args
from benchmarks.peers.record import Record
from benchmarks.peers.turns import TurnRollouts
from common.cli import Parser
from envs import make_env
from envs.pool.serial import EpisodeSeeds
from envs.tools.tool_env import ToolEnv

REQUIRED = ("trl", "datasets", "pyarrow", "pandas", "dill", "xxhash", "multiprocess", "dateutil")
GROUP = 8  # episodes that share a seed
EPISODES, TURNS = 64, 256  # rows of a batch: episodes for environments with tools, else turns


def main(argv: list[str] | None = None) -> int:
    parser = Parser("benchmarks.peers.trl_grpo", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--env-name", default="tools-calculator", help="an environment with tools, or a text game")
    flag("--model", required=True, help="directory of a Hugging Face model")
    flag("--seed", type=int, default=1, help="random seed")
    flag("--turns", type=int, default=20_480, help="training ends after this many turns")
    flag("--updates", type=int, default=None, help="training ends after this many batches")
    flag("--lr", type=float, default=4e-4, help="constant learning rate")
    flag("--epochs", type=int, default=1, help="passes over a batch, TRL's num_iterations")
    flag("--minibatches", type=int, default=1, help="optimizer steps of a pass")
    flag("--beta", type=float, default=0.0, help="coefficient of the KL penalty")
    flag("--run-dir", type=Path, required=True, help="directory of the run, which must not exist")
    flag("--batch-rows", type=int, default=None, help="default: 64 episodes, or 256 turns")
    flag("--micro", type=int, default=None, help="rows computed at once; default: a minibatch")
    flag("--bf16", action="store_true", help="compute in bfloat16, with weights in float32")
    flag("--vllm", action="store_true", help="generate by vLLM, on a GPU")
    args, args.flags = parser.parse_known_args(argv)
    if missing := [name for name in REQUIRED if find_spec(name) is None]:
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
        """Writes a line of the record after the updates of each batch."""

        def on_train_begin(self, config, state, control, **others):
            record.start()

        def on_step_end(self, config, state, control, **others):
            if state.global_step % (args.epochs * args.minibatches) == 0:
                turns = record.write()
                control.should_training_stop = turns >= args.turns or record.updates == args.updates

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tools = isinstance(make_env(args.env_name), ToolEnv)
    args.batch_rows = args.batch_rows or (EPISODES if tools else TURNS)
    record = Record(args)
    make = tool_arguments if tools else turn_arguments
    settings = make(args, tokenizer, record)
    trainer = GRPOTrainer(args.model, processing_class=tokenizer, callbacks=[Steps()], **settings)
    trainer.train()
    trainer.model.save_pretrained(args.run_dir / "model")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(Path(args.model) / file, args.run_dir / "model")


def import_datasets() -> None:
    """Make `datasets` work with pyarrow 26.

    It pickles rows to get a fingerprint for its cache, and cannot pickle one of pyarrow's types.
    The cache is not needed here, so the fingerprint is a random number.
    """
    from datasets.fingerprint import Hasher

    Hasher.hash = classmethod(lambda cls, value: secrets.token_hex(8))


def main_flags(args):
    """Return the settings of main.py that say how the environment is played."""
    return get_args(["--env-name", args.env_name, "--model", args.model, *args.flags])


def config(args, **others):
    """Return a GRPOConfig that keeps TRL's defaults except for the command line and what follows.

    Mixed precision and recomputation are off, because they only slow down a small model on a CPU,
    and Adam's beta is ours.
    """
    import torch
    from trl import GRPOConfig

    steps, minibatch = args.epochs * args.minibatches, args.batch_rows // args.minibatches
    micro = args.micro or minibatch
    return GRPOConfig(
        output_dir=str(args.run_dir), seed=args.seed, learning_rate=args.lr,
        lr_scheduler_type="constant", adam_beta2=0.99, beta=args.beta, num_iterations=args.epochs,
        steps_per_generation=args.batch_rows // micro, per_device_train_batch_size=micro,
        gradient_accumulation_steps=minibatch // micro,
        max_steps=steps * args.turns,  # an upper bound: `Steps` ends the run
        use_cpu=not torch.cuda.is_available(), bf16=args.bf16, use_vllm=args.vllm,
        vllm_mode="colocate", gradient_checkpointing=False, report_to="none",
        save_strategy="no", logging_strategy="no", disable_tqdm=True, **others,
    )  # fmt: skip


def tool_arguments(args, tokenizer, record: Record) -> dict:
    """Return arguments of GRPOTrainer for an environment with tools."""
    from datasets import Dataset
    from trl.chat_template_utils import qwen3_template

    flags = main_flags(args)
    options = dict(max_episode_steps=flags.max_episode_steps, data=flags.data)
    make = functools.partial(make_env, args.env_name, **options)
    env, seeds = make(), EpisodeSeeds(args.seed, 0)
    prompt = [{"role": "system", "content": env.system}, {"role": "user", "content": ""}]
    count = args.turns // GROUP + args.batch_rows  # of questions: an episode has at least one turn
    rows = [{"prompt": prompt, "seed": seeds.draw(k)} for k in range(count)]
    tokenizer.response_template = qwen3_template  # tells TRL's parser how calls are written

    def reward(completions, environments, **others) -> list[float]:
        pairs = zip(environments, completions, strict=True)
        rewards = [env._judge(messages) for env, messages in pairs]
        roles = [message["role"] for messages in completions for message in messages]
        record.add([reward > 0 for reward in rewards], roles.count("assistant"))
        return rewards

    limit = {"max_tokens" if args.vllm else "max_new_tokens": flags.response_limit}
    limits = dict(max_completion_length=4 * env.max_turns * flags.response_limit,
                  max_tool_calling_iterations=env.max_turns - 1, num_generations=GROUP,
                  generation_kwargs=limit)  # fmt: skip
    return dict(
        args=config(args, **limits), reward_funcs=reward,
        train_dataset=Dataset.from_list(rows), environment_factory=class_for(make),
    )  # fmt: skip


def class_for(make: Callable[[], ToolEnv]) -> type:
    """Return one of our environments with tools, which `make` makes, as a class for TRL.

    `reset` returns the question, and every other public method is a tool.
    """

    class Environment:
        def __init__(self):
            self._env = make()

        def reset(self, seed: int, **row) -> str:
            return self._env.reset(seed=seed)[0]

        def _judge(self, messages: list[dict]) -> float:
            last = messages[-1]
            answered = last["role"] == "assistant" and not last.get("tool_calls")
            return self._env.reward(last["content"]) if answered else 0.0

    for tool, function in make().toolbox.functions.items():
        setattr(Environment, tool, tool_for(tool, function.__func__))
    return Environment


def tool_for(name: str, function):
    """Return a tool with the same results as ours, including those for wrong arguments."""

    @functools.wraps(function)  # TRL shows the model its signature and docstring
    def call(self, **arguments) -> str:
        return self._env.toolbox.answer(({"name": name, "arguments": arguments},))[0]

    return call


def turn_arguments(args, tokenizer, record: Record) -> dict:
    """Return arguments of GRPOTrainer for an environment whose prompt shows the last turns."""
    from datasets import Dataset

    flags = main_flags(args)
    rollouts = TurnRollouts(
        flags, tokenizer, EpisodeSeeds(args.seed, 0), args.batch_rows, GROUP, record
    )
    limits = dict(max_completion_length=flags.response_limit, num_generations=args.batch_rows,
                  scale_rewards="none")  # fmt: skip
    return dict(
        args=config(args, **limits), rollout_func=record.timed(rollouts),
        reward_funcs=lambda completions, advantage, **others: advantage,
        train_dataset=Dataset.from_list([{"prompt": ""}]),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
