"""Does a run fit? `turnwise fit` (or --dry-run-memory) prints a table of bytes per rank, about how
long an update takes, and advice if the run does not fit. A run on a GPU gets the advice as a
warning. Only the model's config.json is read; the formulas are in `run.fit.estimate` and
`run.fit.roofline`.
"""

import importlib.util
import os
from contextlib import suppress
from dataclasses import fields, replace

import torch

from common.plugins import UserError
from ppo.model.decoder import choose_dtype
from run.fit.estimate import MOMENTS, Setting, Shape, estimate, load_shape, loading, states, totals
from run.fit.roofline import find_device, seconds


def check_fit(args) -> bool:
    """Return whether the program is done, because --dry-run-memory only asks what a run needs. A
    run on a GPU is warned. ValueError: as `dry_run`"""
    if args.dry_run_memory:
        dry_run(args)
    else:
        warn_if_too_large(args)
    return args.dry_run_memory


def dry_run(args) -> None:
    """Print what a run would need. ValueError, with advice: it does not fit"""
    shape, k = load_shape(args.model), args.critic_layers
    if k > shape.n_layers:
        raise UserError(f"--critic-layers must be 0..{shape.n_layers} for this model, got {k}")
    there = capacities(local_ranks())
    setting = setting_of(args, there[0])
    print(table(shape, setting, there))
    print(times(shape, setting))
    if not fits(needs(shape, setting), there):
        raise UserError(advice(shape, setting, there))


def warn_if_too_large(args) -> None:
    """On a GPU print one line if the estimate is larger than what there is."""
    if not torch.cuda.is_available() or os.environ.get("RANK", "0") != "0":
        return
    with suppress(ValueError):  # what is wrong with a model is told when it is loaded
        shape, there = load_shape(args.model), capacities(local_ranks())
        setting = setting_of(args, there[0])
        if not fits(needs(shape, setting), there):
            print(f"this may not fit: {advice(shape, setting, there)}", flush=True)


def local_ranks() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", 1)))


def capacities(ranks_here: int) -> tuple[int, int]:
    """Bytes (of the device, of the host) that a rank may use. On a CPU they are the same."""
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # macOS tells no more
    with suppress(FileNotFoundError), open("/proc/meminfo", encoding="utf-8") as info:
        host = 1024 * next(int(line.split()[1]) for line in info if line.startswith("MemAvailable"))
    host //= ranks_here
    return (torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else host), host


def setting_of(args, device: int) -> Setting:
    """Read the command line and the launcher's variables; `device` is in bytes."""
    ranks, cuda = int(os.environ.get("WORLD_SIZE", 1)), torch.cuda.is_available()
    vllm = args.engine != "transformers" and importlib.util.find_spec("vllm")
    derived = dict(ranks=ranks, cuda=cuda) | dict(
        token_budget=max(args.token_budget, args.prompt_limit + args.response_limit),  # a whole row
        n_env=max(1, args.n_env // ranks),
        # of whole episodes: the least; no environment here says how long its episodes are
        e_len=max(1, (args.turns_per_update or args.n_env * args.e_len) // args.n_env),
        engine="vllm" if vllm else "transformers",
        itemsize=choose_dtype(args.dtype, "cuda" if cuda else "cpu").itemsize,
        merged=args.merge_turns != "off" and args.memory in ("full", "verbatim"),
        vllm_share=int(args.gpu_memory_utilization * device) if cuda else 0,
    )
    same = {f.name: getattr(args, f.name) for f in fields(Setting) if f.name not in derived}
    return Setting(**same, **derived)


def needs(shape: Shape, setting: Setting) -> tuple[int, int]:
    """Bytes (of the device at the peak, of the host)."""
    moved = (size for term, size in states(shape, setting).items() if setting.on_host(term))
    return max(loading(shape, setting), *totals(shape, setting).values()), sum(moved)


def fits(need: tuple[int, int], there: tuple[int, int]) -> bool:
    return need[0] <= there[0] and need[1] <= there[1]


def table(shape: Shape, setting: Setting, there: tuple[int, int]) -> str:
    """One line for each term and one column for each moment."""
    rows = estimate(shape, setting) | {"total": totals(shape, setting).values()}
    lines = [f"{'GB per rank':14s}" + "".join(f"{moment:>10s}" for moment in MOMENTS)]
    for term, sizes in rows.items():
        cells = (f"{size / 1e9:.2f}" if size else "-" for size in sizes)
        lines.append(f"{term:14s}" + "".join(f"{cell:>10s}" for cell in cells))
    peak, host = needs(shape, setting)
    where = f"the {'GPU' if setting.cuda else 'CPU'} has {there[0] / 1e9:.2f} GB per rank"
    lines.append(f"peak {peak / 1e9:.2f} GB; {where}")
    if peak == loading(shape, setting):
        lines.append("this is at the start, when each rank reads the whole model")
    if host:
        lines.append(f"on the host {host / 1e9:.2f} GB; it has {there[1] / 1e9:.2f} GB per rank")
    return "\n".join(lines)


def times(shape: Shape, setting: Setting) -> str:
    """One line: about how long an update takes on GPUs like this one, else on H100s."""
    device = find_device(torch.cuda.get_device_name() if torch.cuda.is_available() else "")
    phases = seconds(shape, setting, device)
    if phases["generation"] == float("inf"):
        return "vLLM has no room for one turn beside the weights: raise --gpu-memory-utilization"
    each = ", ".join(f"{name} {of_phase:.3g}" for name, of_phase in phases.items())
    total = f"{sum(phases.values()):.3g}"
    return f"an update takes some {total} s on {device.name}s, by arithmetic: {each}"


def advice(shape: Shape, setting: Setting, there: tuple[int, int]) -> str:
    """One line: what is missing, and the single changes that help, the best one first."""
    need = needs(shape, setting)
    place = int(need[0] <= there[0])  # 0: the device is too small, 1: the host is
    new = {words: needs(shape, replace(setting, **c)) for words, c in changes(setting).items()}
    better = sorted((n[place], words) for words, n in new.items() if n[place] < 0.98 * need[place])
    fit = {words: " (fits)" * fits(new[words], there) for _, words in better}
    helps = ", ".join(f"{words}{fit[words]} {size / 1e9:.1f} GB" for size, words in better)
    remedy = f"With one change: {helps}" if helps else "Take a smaller model"
    lacks = f"the run needs {need[place] / 1e9:.1f} GB of the {('device', 'host')[place]} per rank"
    return f"{lacks}, which has {there[place] / 1e9:.1f} GB. {remedy}"


def changes(setting: Setting) -> dict[str, dict]:
    """Words -> fields of a setting. Some may be in force already; `advice` drops those."""
    stage = 3 if setting.engine == "vllm" else 2  # transformers generates with whole weights
    more = dict(ranks=8 * setting.ranks, zero_stage=stage, n_env=max(1, setting.n_env // 8))
    now, first = setting.zero_stage, "" if setting.zero_stage else "--zero-stage 1 "
    return {
        # ranks on one CPU share its memory
        f"{8 * setting.ranks} ranks and --zero-stage {stage}": more if setting.cuda else {},
        f"--zero-stage {stage}": dict(zero_stage=stage if setting.ranks > 1 else now),
        f"{first}--offload-optimizer": dict(zero_stage=max(1, now), offload_optimizer=True),
        "no --offload-optimizer": dict(offload_optimizer=False),
        "--lora-rank 16": dict(lora_rank=16, reference="device"),
        "--reference host": dict(reference="host"),
        "--reference device": dict(reference="device"),
        "--gradient-checkpointing": dict(gradient_checkpointing=True),
        f"--token-budget {setting.length}": dict(token_budget=setting.length),
        "--dtype bfloat16": dict(itemsize=2),
        "half the --gpu-memory-utilization": dict(vllm_share=setting.vllm_share // 2),
        "half the --n-env": dict(n_env=max(1, setting.n_env // 2)),
        "half the --w-epoch": dict(w_epoch=setting.w_epoch // 2),
    }
