"""`--dry-run-memory`: does a run fit? A table of bytes per rank, and advice where it does not.

    python main.py --model Qwen/Qwen2.5-7B-Instruct --dry-run-memory
    WORLD_SIZE=8 python main.py --zero-stage 3 --dry-run-memory      what each of 8 ranks would need

Only the model's config.json is read. The formulas are in `ppo.fit.estimate`.
"""

import os
from dataclasses import replace

import torch

from ppo.fit.estimate import estimate, on_host
from ppo.fit.setting import Setting, Shape, load_shape, setting_of, world_size

GB = 1e9
TERMS = "parameters gradients optimizer reference engine activations".split() + ["AdamW buffers"]


def dry_run(args) -> int:
    """Print what the run would need; 0 if it fits.

    ValueError: it does not, with advice; or the model's configuration cannot be read
    """
    shape = load_shape(args.model)
    if args.critic_layers > shape.n_layers:
        raise ValueError(
            f"--critic-layers must be 0..{shape.n_layers} for this model, got {args.critic_layers}"
        )
    there = capacities(int(os.environ.get("LOCAL_WORLD_SIZE", world_size())))
    setting = setting_of(args, there[0])
    print(table(shape, setting, there))
    if not fits(needs(shape, setting), there):
        raise ValueError(advice(shape, setting, there))
    return 0


def capacities(ranks_here: int) -> tuple[int, int]:
    """Bytes (of the device, of the host) that a rank may use. On a CPU they are the same."""
    with open("/proc/meminfo") as info:
        free = next(int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable"))
    host = free // ranks_here
    return (torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else host), host


def needs(shape: Shape, setting: Setting) -> tuple[int, int]:
    """Bytes (of the device at the peak, of the host)."""
    moments = estimate(shape, setting).values()
    return max(sum(terms.values()) for terms in moments), on_host(shape, setting)


def fits(need: tuple[int, int], there: tuple[int, int]) -> bool:
    return need[0] <= there[0] and need[1] <= there[1]


def table(shape: Shape, setting: Setting, there: tuple[int, int]) -> str:
    """A line for each term, a column for each moment."""
    moments = estimate(shape, setting)
    rows = {term: [terms.get(term, 0) for terms in moments.values()] for term in TERMS}
    rows["total"] = [sum(terms.values()) for terms in moments.values()]
    lines = [f"{'GB per rank':14s}" + "".join(f"{moment:>10s}" for moment in moments)]
    for name, sizes in rows.items():
        cells = (f"{size / GB:.2f}" if size else "-" for size in sizes)
        lines.append(f"{name:14s}" + "".join(f"{cell:>10s}" for cell in cells))
    peak, aside = needs(shape, setting)
    device = "GPU" if setting.cuda else "CPU"
    lines.append(f"peak {peak / GB:.2f} GB; the {device} has {there[0] / GB:.2f} GB per rank")
    if aside:
        lines.append(f"on the host {aside / GB:.2f} GB; it has {there[1] / GB:.2f} GB per rank")
    return "\n".join(lines)


def advice(shape: Shape, setting: Setting, there: tuple[int, int]) -> str:
    """One line: what is missing, and the changes that help most, each alone."""
    need = needs(shape, setting)
    place = int(need[0] <= there[0])  # 0: the device is too small, 1: the host is
    better = []
    for words, change in changes(setting).items():
        new = needs(shape, replace(setting, **change))
        if new[place] < 0.98 * need[place]:
            better.append((new[place], words + (" (fits)" if fits(new, there) else "")))
    helps = ", ".join(f"{words} {size / GB:.1f} GB" for size, words in sorted(better))
    return (
        f"the run needs {need[place] / GB:.1f} GB of the {('device', 'host')[place]} per rank, "
        f"which has {there[place] / GB:.1f} GB. "
        + (f"With one change: {helps}" if helps else "Take a smaller model")
    )


def changes(setting: Setting) -> dict[str, dict]:
    """Words -> what they change of a setting, where that is possible."""
    highest = 3 if setting.engine == "vllm" else 2  # transformers generates with whole weights
    ranks, found = 8 * setting.ranks, {}
    if setting.cuda:  # ranks on one CPU share its memory
        share = max(1, setting.n_env // 8)
        found[f"{ranks} ranks and --zero-stage {highest}"] = dict(
            ranks=ranks, zero_stage=highest, n_env=share
        )
    if setting.ranks > 1 and setting.zero_stage < highest:
        found[f"--zero-stage {highest}"] = dict(zero_stage=highest)
    if setting.offload:
        found["no --offload-optimizer"] = dict(offload=False)
    else:
        stage = max(1, setting.zero_stage)
        words = (
            "--offload-optimizer" if setting.zero_stage else "--zero-stage 1 --offload-optimizer"
        )
        found[words] = dict(zero_stage=stage, offload=True)
    if not setting.lora_rank:
        found["--lora-rank 16"] = dict(lora_rank=16)
        other = "device" if setting.reference == "host" else "host"
        found[f"--reference {other}"] = dict(reference=other)
    if not setting.recompute:
        found["--gradient-checkpointing"] = dict(recompute=True)
    if setting.tokens > setting.length:
        found[f"--token-budget {setting.length}"] = dict(tokens=setting.length)
    if setting.itemsize > 2:
        found["--dtype bfloat16"] = dict(itemsize=2)
    if setting.vllm_share and setting.engine == "vllm":
        found["half the --gpu-memory-utilization"] = dict(vllm_share=setting.vllm_share // 2)
    elif setting.n_env > 1:
        found["half the --n-env"] = dict(n_env=setting.n_env // 2)
    return found
