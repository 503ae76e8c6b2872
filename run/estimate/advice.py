"""Says whether a run fits into memory.

`turnwise fit` prints a table of the bytes per rank, roughly how long an update takes, and advice if
the run does not fit. A training run on a GPU prints the advice as a warning. Only the model's
config.json is read. The formulas are in `run.estimate.memory` and `run.estimate.roofline`.
"""

import importlib.util
import os
from dataclasses import fields, replace
from itertools import count

import torch

from common.engine_flag import parted
from common.host_memory import free_bytes
from common.plugins import UserError
from common.processors import ranks_here
from ppo.model.make import choose_dtype, in_shards
from ppo.model.top_layers import room_of_states
from run.estimate.memory import MOMENTS, estimate, loading, states, totals
from run.estimate.roofline import find_device, seconds
from run.estimate.setting import FP32, Setting
from run.estimate.shape import Shape, load_shape


def print_estimate(args) -> None:
    """Print the memory that a run needs.

    UserError: the run does not fit; the message has advice
    """
    shape, k = load_shape(args.model), args.critic_layers
    if k > shape.n_layers:
        raise UserError(f"--critic-layers must be 0..{shape.n_layers} for this model, got {k}")
    if (top := args.update.top_layers) > shape.n_layers:
        raise UserError(f"--train top:{top} is above the {shape.n_layers} layers of this model")
    setting, available = here(args)
    print(table(shape, setting, available))
    print(times(shape, setting))
    if played := args.update.continuations * setting.n_env * setting.e_len:
        print(f"that leaves out {played:,} or more continuations of --advantages {args.advantages}")
    if line := impossible(args.model, shape, setting, available[0]):
        raise UserError(line)
    if not fits(needs(shape, setting), available):
        raise UserError(advice(shape, setting, available))


def check_size(args) -> None:
    """On a GPU, print one line if the estimate exceeds the available memory.

    UserError: the model is too large for this program, whatever the estimate is
    """
    if not torch.cuda.is_available():
        return
    try:
        shape = load_shape(args.model)
    except ValueError:
        return  # loading reports a model that cannot be read
    setting, available = here(args)
    if line := impossible(args.model, shape, setting, available[0]):
        raise UserError(line)
    if os.environ.get("RANK", "0") == "0" and not fits(needs(shape, setting), available):
        print(f"this may not fit: {advice(shape, setting, available)}", flush=True)


def impossible(model: str, shape: Shape, setting: Setting, device: int) -> str:
    """Return why a model cannot be used on GPUs of this size, in one line, or "" if it can.

    device: bytes of a GPU
    """
    weights, whole = setting.engine_weights(shape.model), FP32 * shape.model
    begin = f"--model {model}: one GPU has {device / 1e9:.1f} GB"
    if setting.cuda and setting.engine == "vllm" and weights > device:
        reason, n = f"vLLM needs {weights / 1e9:.1f} GB there", spread(shape, setting, device)
        return (
            f"{begin}, and {reason} for the weights; --engine vllm:{n} spreads them over {n} ranks"
        )
    if setting.cuda and not in_shards(setting) and whole > device:
        reason = f"each rank loads the whole model in fp32, {whole / 1e9:.1f} GB"
        return f"{begin}, and {reason}; --zero-stage 3 without --train loads it in shards"
    return ""


def spread(shape: Shape, setting: Setting, device: int) -> int:
    """Return how many ranks should share an engine, so that weights take half of a GPU at most."""
    return next(
        n for n in (2**k for k in count()) if setting.itemsize * shape.model <= n * device / 2
    )


def capacities(ranks: int) -> tuple[int, int]:
    """Return the bytes of the device and of the host for each rank. On a CPU both are the same."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # macOS reports only this
    host = (free_bytes() or total) // ranks
    return (torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else host), host


def here(args) -> tuple[Setting, tuple[int, int]]:
    """Return the setting of a run on this machine, and what `capacities` returns."""
    available = capacities(ranks_here())
    return setting_of(args, available[0]), available


def setting_of(args, device: int) -> Setting:
    """Make the setting from the flags and the launcher's variables. device: bytes of the device"""
    ranks, cuda = int(os.environ.get("WORLD_SIZE", 1)), torch.cuda.is_available()
    vllm = args.engine != "transformers" and importlib.util.find_spec("vllm")
    derived = dict(
        ranks=ranks,
        cuda=cuda,
        token_budget=max(args.token_budget, args.prompt_limit + args.response_limit),  # a whole row
        n_env=max(1, args.n_env // ranks),
        # a lower bound if whole episodes are collected, because their lengths are unknown
        e_len=args.e_len,
        engine="vllm" if vllm else "transformers",
        sharing=parted(args.engine)[1],
        itemsize=choose_dtype(args.dtype, "cuda" if cuda else "cpu").itemsize,
        merged=args.rows not in ("padded", "packed")
        and args.memory in ("full", "summary", "verbatim"),
        vllm_share=int(args.gpu_memory_utilization * device) if cuda else 0,
        no_critic=args.update.no_critic,
        lora_rank=args.update.lora_rank,
        top_layers=args.update.top_layers,
        known_room=room_of_states(),
        reference=args.update.reference,
        offload_optimizer=args.update.offload_optimizer,
    )
    same = {f.name: getattr(args, f.name) for f in fields(Setting) if f.name not in derived}
    return Setting(**same, **derived)


def needs(shape: Shape, setting: Setting) -> tuple[int, int]:
    """Return the peak bytes on the device, and the bytes on the host."""
    moved = (size for term, size in states(shape, setting).items() if setting.on_host(term))
    return max(loading(shape, setting), *totals(shape, setting).values()), sum(moved)


def fits(need: tuple[int, int], available: tuple[int, int]) -> bool:
    return need[0] <= available[0] and need[1] <= available[1]


def table(shape: Shape, setting: Setting, available: tuple[int, int]) -> str:
    """Return a table with one line per term and one column per moment."""
    rows = estimate(shape, setting) | {"total": totals(shape, setting).values()}
    lines = [f"{'GB per rank':14s}" + "".join(f"{moment:>10s}" for moment in MOMENTS)]
    for term, sizes in rows.items():
        cells = (f"{size / 1e9:.2f}" if size else "-" for size in sizes)
        lines.append(f"{term:14s}" + "".join(f"{cell:>10s}" for cell in cells))
    peak, host = needs(shape, setting)
    where = f"the {'GPU' if setting.cuda else 'CPU'} has {available[0] / 1e9:.2f} GB per rank"
    lines.append(f"peak {peak / 1e9:.2f} GB; {where}")
    if peak == loading(shape, setting):
        lines.append("the peak is at the start, while the model is loaded")
    if host:
        has = f"the host has {available[1] / 1e9:.2f} GB per rank"
        lines.append(f"host memory: {host / 1e9:.2f} GB; {has}")
    return "\n".join(lines)


def times(shape: Shape, setting: Setting) -> str:
    """Return one line: roughly how long an update takes on this GPU, or on an H100 without one."""
    device = find_device(torch.cuda.get_device_name() if torch.cuda.is_available() else "")
    phases = seconds(shape, setting, device)
    if phases["generation"] == float("inf"):
        remedies = "raise --gpu-memory-utilization, or let ranks share an engine (--engine vllm:2)"
        return f"vLLM has no room for one turn beside the weights: {remedies}"
    each = ", ".join(f"{name} {of_phase:.3g}" for name, of_phase in phases.items())
    total = f"{sum(phases.values()):.3g}"
    return f"an update takes about {total} s on {device.name}s (estimated): {each}"


def advice(shape: Shape, setting: Setting, available: tuple[int, int]) -> str:
    """Return one line: which memory is too small, and the changes that help, best first."""
    need = needs(shape, setting)
    memory = 1 if need[0] <= available[0] else 0  # the device's, or else the host's
    name = ("device", "host")[memory]
    lacks = f"the run needs {need[memory] / 1e9:.1f} GB of the {name} per rank"
    remedy = remedies(shape, setting, available, memory)
    return f"{lacks}, which has {available[memory] / 1e9:.1f} GB. {remedy}"


def remedies(shape: Shape, setting: Setting, available: tuple[int, int], memory: int) -> str:
    """Return the changes that help, best first. memory: 0, the device's, or 1, the host's"""
    need, helpful = needs(shape, setting), []
    for words, fields_changed in changes(setting).items():
        then = needs(shape, replace(setting, **fields_changed))
        if then[memory] < 0.98 * need[memory]:
            helpful.append((then[memory], words, " (fits)" if fits(then, available) else ""))
    lines = [f"{words}{fit} {size / 1e9:.1f} GB" for size, words, fit in sorted(helpful)]
    return f"With one change: {', '.join(lines)}" if lines else "Take a smaller model"


def changes(setting: Setting) -> dict[str, dict]:
    """Return the possible changes, as flags -> changed fields of the setting.

    Some may already be set. They save nothing, so `advice` leaves them out.
    """
    # transformers generates with whole weights, and top layers are not sharded
    stage = 3 if setting.engine == "vllm" and not setting.top_layers else 2
    more = dict(ranks=8 * setting.ranks, zero_stage=stage, n_env=max(1, setting.n_env // 8))
    if stage == 3 and setting.reference == "device" and not setting.lora_rank:
        more |= dict(reference="sharded")
    # With LoRA and with top layers there is no whole copy that could be offloaded.
    copied = setting.reference if setting.lora_rank or setting.top_layers else "host"
    lora = "--train lora:16" + " without --offload reference" * (setting.reference == "host")
    now, first = setting.zero_stage, "" if setting.zero_stage else "--zero-stage 1 "
    return {
        # ranks on one CPU share its memory
        f"{8 * setting.ranks} ranks and --zero-stage {stage}": more if setting.cuda else {},
        f"--zero-stage {stage}": dict(zero_stage=stage if setting.ranks > 1 else now),
        f"{first}--offload optimizer": dict(zero_stage=max(1, now), offload_optimizer=True),
        "no --offload optimizer": dict(offload_optimizer=False),
        lora: dict(lora_rank=16, top_layers=0, reference="device"),
        "--offload reference": dict(reference=copied),
        "no --offload reference": dict(reference="device"),
        "--gradient-checkpointing": dict(gradient_checkpointing=True),
        f"--token-budget {setting.length}": dict(token_budget=setting.length),
        "--dtype bfloat16": dict(itemsize=2),
        "half the --gpu-memory-utilization": dict(vllm_share=setting.vllm_share // 2),
        "half the --n-env": dict(n_env=max(1, setting.n_env // 2)),
        "half the --w-epoch": dict(w_epoch=setting.w_epoch // 2),
    }
