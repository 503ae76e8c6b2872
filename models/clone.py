"""Clone demonstrations: a supervised warm start for a model whose success is near 0.

    python -m models.clone --model smollm2 --turns player:babyai:goto --out runs/goto-clone
    python main.py --env-name babyai-goto --model runs/goto-clone

PPO amplifies what a policy sometimes does right; where it never does, there is nothing to amplify.
`--turns` names what to imitate, one or more of

    player:FAMILY or player:FAMILY:TASK    a scripted player of models/players
    RUN                                    an earlier run's logged episodes, the successful ones
                                           alone with --min-return (rejection sampling)
    FILE.jsonl                             conversations {"messages": [...]}, one a line

Cloning ends early when the policy becomes too sharp for PPO to explore (`--min-entropy`). The same
command goes on where it was interrupted.
"""

import glob
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

from common.cli import Parser, end_silently_on_signals, run_printing
from common.errors import RunError
from common.flags import Coefficient, Count, Seed, Share, Unit, Whole, add_flags, check_ranges, flag
from common.plugins import UserError
from common.trained import FORMS, Trained, trained
from envs.prompts import prompts_of
from models.clone_files import (
    STATE,
    UNSCORED,
    add_scores,
    check_out,
    load,
    save,
    write_model,
)
from run.earlier import model_path
from run.files import recover


def prompts_file(path: str) -> Path:
    """The type of --prompts: a file that main.py takes, too."""
    prompts_of(path)
    return Path(path)


# fmt: off
@dataclass
class Cloning(Trained):
    """cloning"""

    model: str | None = flag(None, "directory, run or hub name of a Hugging Face model, or smollm2", type=model_path)
    turns: list | None = flag(None, "what to imitate: player:FAMILY[:TASK], RUN or FILE.jsonl", nargs="+", type=str)
    out: Path | None = flag(None, "directory of the model that is made", type=Path, metavar="DIR")
    prompts: Path | None = flag(None, "your own prompts for scripted players and evaluations, as --prompts of main.py", type=prompts_file, metavar="FILE")
    memory: Literal["mixed", "full"] = flag("mixed", "what prompts of scripted players show: a window of turns, in several lengths, or all turns, as --memory full of main.py")
    min_return: float = flag(-1e9, "imitate the episodes of a run that have this return or more", type=float)
    steps: Count = flag(100, "optimizer steps")
    batch: Count = flag(16, "turns per optimizer step")
    lr: Unit = flag(2e-5, "peak learning rate, which a cosine brings to 0")
    held_out: Share = flag(0.1, "share of the turns that are held out")
    check_interval: Count = flag(10, "steps between two measurements on held-out turns, and saves")
    min_entropy: Coefficient = flag(0.05, "end below this entropy of held-out tokens, in nats; 0: never")
    prompt_limit: Count = flag(1024, "tokens of a prompt; turns with longer ones are left out")
    token_budget: Count = flag(4096, "padded tokens per forward pass")
    rows: Literal["auto", "padded", "packed"] = flag("auto", "padded: a row per turn; packed: no padding")
    dtype: Literal["auto", "float32", "bfloat16"] = flag("auto", "dtype of activations; auto: bfloat16 on a GPU")
    gradient_checkpointing: bool = flag(False, "recompute activations in the backward pass")
    train: str = flag("all", f"{FORMS}: all weights, LoRA adapters of this rank, or the top layers", type=trained, metavar="WHAT")
    zero_stage: Literal[0, 1, 2, 3] = flag(0, "DeepSpeed ZeRO stage")
    eval_episodes: Whole = flag(8, "episodes of an evaluation before and one after, by main.py; 0: none")
    eval_flags: str = flag("", "flags of main.py for them, as in '--env-name crafter --memory full'", metavar="FLAGS")
    seed: Seed = flag(1, "seed of everything random")
# fmt: on


def get_args(argv: list[str] | None = None) -> Cloning:
    """Parse and check a command line. A mistake prints one line and exits with code 2."""
    parser = Parser("models.clone", description=__doc__.splitlines()[0])
    add_flags(parser, Cloning)
    args = Cloning(**vars(parser.parse_args(argv)))
    try:
        for name in ("model", "turns", "out"):
            if getattr(args, name) is None:
                raise UserError(f"--{name} is missing; see --help")
        check_ranges(args)
        check_out(args)
    except UserError as error:
        parser.error(str(error))
    return args


def clone(args: Cloning) -> None:
    """Clone, write the model and evaluate it. Does only what an interrupted clone has not done.

    UserError, RunError: it cannot be made, written or evaluated
    """
    from ppo.distributed import make_ranks

    ranks = make_ranks(args.zero_stage)  # first: from here on rank 0 prints for all
    if ranks.rank == 0:
        recover(args.out.parent, glob.escape(args.out.name))
    ranks.wait()
    if not (args.out / UNSCORED).is_file():
        make_clone(args, ranks)
    if ranks.rank == 0 and (args.out / UNSCORED).is_file():
        score(args)


def make_clone(args: Cloning, ranks) -> None:
    """Imitate the turns, and write the model. UserError, RunError: it cannot be made or written"""
    from memory.spelled import SafeRenderer
    from models.before_after import evaluate, flags_of, own_words
    from models.demonstrations import encoded, read_turns
    from models.imitation import Imitation
    from ppo.distributed import make_stepper
    from ppo.model.make import make_model

    turns = []
    for source in args.turns:
        turns += read_turns(
            source,
            args.min_return,
            args.seed,
            own_words(args.prompts, source),
            args.memory == "full",
        )
    generation = SimpleNamespace(
        model=args.model, prompt_limit=args.prompt_limit, response_limit=0, template_kwargs={}
    )
    parts = dict(lora_rank=args.lora_rank, top_layers=args.top_layers)
    update = SimpleNamespace(**asdict(args), no_critic=True, **parts)
    actor, tokenizer, _ = make_model(generation, update, ranks.device, args.seed)
    samples = encoded(turns, SafeRenderer(tokenizer, args.prompt_limit), tokenizer)
    learnt, held_out = split(samples, args.held_out, args.seed)
    line = f"{len(learnt)} turns to imitate, {len(held_out)} held out"
    if left_out := len(turns) - len(samples):
        line += f", {left_out} left out: their prompts are too long"
    print(line, flush=True)
    stepper = make_stepper(ranks, args.zero_stage, offload=False)
    work = Imitation(actor, learnt, args.steps, args.batch, args.lr, args.seed, stepper)
    flags = flags_of(args, samples) if ranks.size == 1 else []  # else rank 0 would be waited for
    before = load(args.out / STATE, work) if args.out.exists() else ""
    if flags and not before:
        before = evaluate(args.model, flags)
        print(f"before: {before}", flush=True)
    why = imitate(args, work, held_out, ranks, before)
    write_model(args, actor, tokenizer, ranks, before, flags)
    print(f"{why} after {work.step} steps: {args.out}", flush=True)


def score(args: Cloning) -> None:
    """Evaluate the model in --out, and add the scores to its card. RunError: see `evaluate`"""
    from models.before_after import evaluate

    unscored = json.loads((args.out / UNSCORED).read_text(encoding="utf-8"))
    after = evaluate(args.out, unscored["flags"])
    print(f"after: {after}")
    add_scores(args, after=after, **unscored)


def split(samples: list, share: float, seed: int) -> tuple[list, list]:
    """Return the samples to learn from and those that are held out, at least one each."""
    import numpy as np

    if len(samples) < 2:
        raise UserError("there are fewer than two turns whose prompts fit --prompt-limit")
    order = np.random.default_rng(seed).permutation(len(samples)).tolist()
    count = min(len(samples) - 1, max(1, round(share * len(samples))))
    return [samples[i] for i in order[count:]], [samples[i] for i in order[:count]]


def imitate(args: Cloning, work, held_out: list, ranks, before: str) -> str:
    """Make the steps, measure and save in between. Returns why it ended.

    before: what an evaluation of the initial model said, which is saved, too
    """
    loss = None
    while True:
        if work.step % args.check_interval == 0 or work.step == args.steps:
            save(args, work, ranks, before)  # first: if --out cannot be written, the program ends
            held, entropy = work.measure(held_out, args.token_budget)
            shown = "" if loss is None else f"  loss {loss:.3f}"
            print(f"step {work.step}/{args.steps}{shown}  held out: loss {held:.3f}, "
                  f"entropy {entropy:.3f}", flush=True)  # fmt: skip
            if work.step and entropy < args.min_entropy:
                return f"ended early, as the held-out entropy is below {args.min_entropy}"
            if work.step == args.steps:
                return "complete"
        loss = work.take_step(args.token_budget)


def main(argv: list[str] | None = None) -> int:
    end_silently_on_signals()
    args = get_args(argv)
    try:
        return run_printing(lambda: clone(args), "models.clone")
    except (UserError, RunError) as error:
        print(f"models.clone: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1


if __name__ == "__main__":
    sys.exit(main())
