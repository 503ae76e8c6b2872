"""Prints the tables of docs/scaling.md: Qwen2.5 from 0.5B to 72B on 1, 8 and 64 H100s, on paper.

    python -m benchmarks.on_paper            prints the tables
    python -m benchmarks.on_paper --write    puts them into docs/scaling.md

Nothing runs and nothing is measured: the figures are those of `run.fit`. For each model and number
of GPUs, all combinations of the flags that change memory and time, but not the method, are tried.
The quickest that fits is shown, where each flag must save 5 %. LoRA is tried only if none fits.
"""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from arguments import get_args
from common.cli import Parser
from run.fit.advice import fits, needs, setting_of
from run.fit.estimate import Setting, Shape, loading, totals
from run.fit.roofline import DEVICES, PHASES, room, seconds

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scaling.md"
# The published shapes of Qwen2.5: hidden, MLP, layers, heads, heads of keys, vocabulary, tied
SHAPES = {
    "0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "3B": (2048, 11008, 36, 16, 2, 151936, True),
    "7B": (3584, 18944, 28, 28, 4, 152064, False),
    "14B": (5120, 13824, 48, 40, 8, 152064, False),
    "32B": (5120, 27648, 64, 40, 8, 152064, False),
    "72B": (8192, 29568, 80, 64, 8, 152064, False),
}
GPUS = (1, 8, 64)
GPU, HOST = 80 * 10**9, 2 * 10**12 // 8  # bytes of a GPU, and of the host for each of its eight
THERE = GPU * 9 // 10, HOST * 9 // 10  # a tenth is left free
RUNS = {"BabyAI": "--env-name babyai-goto", "Crafter": "--env-name crafter"}
MANY = {("BabyAI", 64): "--n-env 64 --e-len 4"}  # 32 environments do not divide among 64 ranks
HEAD = ["model", "GPUs", "flags", "GB per GPU", "generation", "scoring", "training", "update"]
LARGE = ["32B", "72B"]
LARGE_HEAD = ["model", "GPUs", "flags", "GB at the start", "GB for vLLM's weights"]
LARGE_HEAD += ["GB to score and train", "scoring", "training"]


def main() -> None:
    parser = Parser("benchmarks.on_paper", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"put them into docs/{PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
    else:
        print(*tables().values(), sep="\n\n")


def tables() -> dict[str, str]:
    """Return the table of each run and one of the models that are too large, by their names."""
    shapes = {size: shape_of(size) for size in SHAPES}
    made = {}
    for run in RUNS:
        rows = [
            row(run, size, shapes[size], n) for size in SHAPES if size not in LARGE for n in GPUS
        ]
        made[run] = table(HEAD, rows)
    rows = [large_row(size, shapes[size], n) for size in LARGE for n in GPUS[1:]]
    return made | {"too large": table(LARGE_HEAD, rows)}


def filled(page: str, made: dict[str, str]) -> str:
    """Return the page with these tables; each follows the comment that has its name."""
    for run, text in made.items():
        begin = re.escape(f"<!-- table: {run} -->\n\n")
        page = re.sub(rf"(?<={begin})(\|.*\n)+", text + "\n", page)
    return page


def shape_of(size: str) -> Shape:
    D, F, L, H, K, V, tied = SHAPES[size]
    config = Qwen2Config(
        hidden_size=D, intermediate_size=F, num_hidden_layers=1, num_attention_heads=H,
        num_key_value_heads=K, vocab_size=V, tie_word_embeddings=tied,
    )  # fmt: skip
    with torch.device("meta"):  # shapes without numbers
        shape = Shape(AutoModelForCausalLM.from_config(config))
    shape.n_layers = L  # equal layers: one was made, because 80 of them take their time
    shape.model += (L - 1) * shape.layer
    return shape


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def row(run: str, size: str, shape: Shape, ranks: int) -> list[str]:
    own = MANY.get((run, ranks), "")
    flags, setting = best(shape, paper_setting(f"{RUNS[run]} {own}", ranks), runs, PHASES)
    phases = seconds(shape, setting, DEVICES[0])
    together = sum(sum(parts.values()) for parts in phases.values())
    size_of = [gigabytes(needs(shape, setting)[0]), *(said(phases[name]) for name in PHASES[:3])]
    return [size, str(ranks), shown([own, *flags]), *size_of, rounded(together)]


def large_row(size: str, shape: Shape, ranks: int) -> list[str]:
    """A model that neither starts nor fits into one rank's vLLM: the rest of an update."""
    flags, setting = best(shape, paper_setting(RUNS["Crafter"], ranks), trains, PHASES[1:3])
    at_start, weights = loading(shape, setting), setting.itemsize * shape.model
    sizes = map(gigabytes, (at_start, weights, training_peak(shape, setting)))
    phases = seconds(shape, setting, DEVICES[0])
    return [size, str(ranks), shown(flags), *sizes, *(said(phases[name]) for name in PHASES[1:3])]


def shown(flags: list[str]) -> str:
    typed = " ".join(flag for flag in flags if flag)
    return f"`{typed}`" if typed else "(none)"


def said(parts: dict[str, float]) -> str:
    """Say the seconds of a phase, and what limits most of them."""
    return f"{rounded(sum(parts.values()))} {max(parts, key=parts.get)}"


def rounded(number: float) -> str:
    """Give two digits, because the assumptions bear no more."""
    return f"{float(f'{number:.2g}'):,g}"


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.0f}"


def paper_setting(flags: str, ranks: int) -> Setting:
    """The paper's run of an environment on GPUs, shared by so many ranks."""
    args = get_args([*flags.split(), "--model", "Qwen/Qwen2.5-3B-Instruct"])
    here = setting_of(args, GPU)
    given = dict(ranks=ranks, n_env=args.n_env // ranks, cuda=True, engine="vllm", itemsize=2)
    return replace(here, vllm_share=int(args.gpu_memory_utilization * GPU), **given)


def best(shape: Shape, setting: Setting, allowed, phases) -> tuple[list[str], Setting]:
    """Return the flags and the setting with the fewest seconds in these phases, where each flag
    must save 5 %. allowed: a function of shape and setting"""

    def cost(choice) -> float:
        flags, changed = choice
        parts = seconds(shape, changed, DEVICES[0])
        return 1.05 ** len(flags) * sum(sum(parts[name].values()) for name in phases)

    for lora in ({}, {"--lora-rank 16": dict(lora_rank=16)}):
        tried = [c for c in choices(setting, lora) if accepted(c[1]) and allowed(shape, c[1])]
        if tried:
            return min(tried, key=cost)
    raise ValueError("no flags make this model fit")


def choices(setting: Setting, lora: dict):
    """Yield each combination of flags, with its setting. lora: flags that all of them have"""
    many, nothing = setting.ranks > 1, {"": {}}
    budgets = [tokens for tokens in (16384, 65536) if tokens > setting.token_budget]
    references = [] if lora else ["host", "sharded"]
    options = [
        lora or nothing,
        nothing | {f"--zero-stage {n}": dict(zero_stage=n) for n in (1, 2, 3) if many or n == 1},
        nothing | {"--offload-optimizer": dict(offload_optimizer=True)},
        nothing | {f"--reference {home}": dict(reference=home) for home in references},
        nothing | {"--gradient-checkpointing": dict(gradient_checkpointing=True)},
        nothing | {f"--token-budget {tokens}": dict(token_budget=tokens) for tokens in budgets},
        nothing | {f"--gpu-memory-utilization {share}": dict(vllm_share=int(share * GPU))
                   for share in (0.4, 0.6, 0.8)},
    ]  # fmt: skip
    for chosen in product(*(option.items() for option in options)):
        changes = {name: value for _, change in chosen for name, value in change.items()}
        yield [words for words, _ in chosen if words], replace(setting, **changes)


def accepted(setting: Setting) -> bool:
    """Whether main.py accepts the flags together."""
    if setting.offload_optimizer and not setting.zero_stage:
        return False
    return setting.reference != "sharded" or setting.zero_stage == 3


def runs(shape: Shape, setting: Setting) -> bool:
    return room(shape, setting) > 0 and fits(needs(shape, setting), THERE)


def trains(shape: Shape, setting: Setting) -> bool:
    """Whether scoring and training would fit, if only the model could be loaded."""
    return fits((training_peak(shape, setting), needs(shape, setting)[1]), THERE)


def training_peak(shape: Shape, setting: Setting) -> int:
    sums = totals(shape, setting)
    return max(size for moment, size in sums.items() if moment != "generate")


if __name__ == "__main__":
    main()
