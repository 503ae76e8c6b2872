"""The test of a model when it is loaded: do the trainer's ways to score a turn agree?

Two turns of different length are scored by the model's own forward pass, one at a time, then by the
pieces of `ppo.model.decoder`: padded, with two responses in one row as merged turns have them, and
packed. They are longer than every window, chunk and rope boundary that a turn of the run can reach.
A model that disagrees beyond rounding is refused in one line; if it is only packing that does,
the run pads and a line says so.
"""

from dataclasses import replace
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.cli import print_status
from common.errors import lacks_memory, reason_of, typed_reason_of
from common.plugins import UserError
from ppo.model.decoder import Compute, decide, embed, padded, precision
from ppo.model.variants import beyond, make_plain, with_whole_layers

KNOWN = "supported are decoders such as Llama, Qwen2, Qwen3, Mistral, OLMo 2 and 3, SmolLM3"
MORE = "does more than its layers and lm_head"
PARTS = ("embed_tokens", "layers", "rotary_emb", "norm")
BOUNDS = (
    "sliding_window", "attention_chunk_size", "original_max_position_embeddings", "floor_scale",
)  # fmt: skip
SHORT, BEYOND, ASKED = 24, 16, 6  # tokens: of a turn, beyond a boundary, and of each response
LONG, SLOW = 1024, 5.0  # tokens and seconds from which the test is told of
# Largest difference of two logits that rounding explains in any model, when the largest is 100.
ROUNDING = {torch.float32: 0.05, torch.bfloat16: 5.0}
# The same where only the contents of another turn have changed: then all products have equal
# shapes, and a plain decoder gives equal bits. (Experts may get their tokens in another order.)
LEAK = {torch.float32: 1e-3, torch.bfloat16: 1.0}


def accept(lm, compute: Compute, packed: bool = False, tokens: int = 0) -> Compute:
    """Return how the layers of the model compute: `compute`, with the model's own masks or packed
    rows where they are needed and agree.

    packed: whether the run wants to train without padding
    tokens: most tokens of a prompt and its response
    UserError: the model's own forward pass and the trainer's do not agree
    """
    name, began = type(lm).__name__, perf_counter()
    make_plain(lm)
    body = getattr(lm, "model", None)
    if not (hasattr(lm, "lm_head") and all(hasattr(body, part) for part in PARTS)):
        raise UserError(f"cannot train {name}: its parts have other names; {KNOWN}")
    turns = test_turns(lm, tokens)
    length = turns[0].shape[1]
    if length > LONG:
        print_status(f"testing the model's masks on turns of {length} tokens ...")
    with torch.no_grad():
        chosen = _padded(lm, compute, *turns)
        if packed:
            chosen = _packed(lm, chosen, *turns)
    if (seconds := perf_counter() - began) > SLOW:
        print_status(f"the model's test took {seconds:.0f} s")
    return chosen


@torch.no_grad()
def accept_adapters(lm, compute: Compute) -> None:
    """UserError: the layers of a model do not compute once they have adapters."""
    try:
        ids, mask = test_turns(lm, 0)
        logits_of(lm, ids, mask, compute)
    except Exception as error:  # routers that return tuples, for one, are linear layers to peft
        if lacks_memory(error):
            raise
        problem = f"do not fit {type(lm).__name__} ({reason_of(error)})"
        raise UserError(f"--train lora: peft's adapters {problem}") from error


def test_turns(lm, tokens: int) -> tuple[Tensor, Tensor]:
    """Return ids and response_mask, both (2, L), of two turns. The second one is shorter, within
    all boundaries, and ends in padding; the first one has two responses, as merged turns have."""
    reached = [bound for bound in boundaries(lm.config) if bound < tokens]
    length = min(max(tokens, SHORT), max(reached, default=0) + BEYOND) if reached else SHORT
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(lm.config.vocab_size, (2, length), generator=generator)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[0, length // 2 - ASKED : length // 2] = mask[0, -ASKED:] = True
    shorter = min(length - length // 8, max(ASKED + 2, min(reached, default=length) * 3 // 4))
    mask[1, shorter - ASKED : shorter] = True
    ids[1, shorter:] = 0
    return ids.to(lm.device), mask.to(lm.device)


def boundaries(config) -> set[int]:
    """Return the numbers of tokens behind which some layer computes in another way."""
    ropes = getattr(config, "rope_parameters", None) or {}
    nested = [rope for rope in ropes.values() if isinstance(rope, dict)]
    places = [vars(config), ropes, *nested]
    found = {place.get(name) for place in places for name in BOUNDS}
    return {bound for bound in found if isinstance(bound, int) and bound > 0}


def _padded(lm, compute: Compute, ids: Tensor, mask: Tensor) -> Compute:
    """Return `compute` or, where only that agrees, the one with the model's own masks."""
    from ppo.model.layers import kinds, with_own_options

    ways = [plain_options, with_whole_layers]
    if kinds(lm.config) or any(bound < ids.shape[1] for bound in boundaries(lm.config)):
        ways.append(with_own_options)
    factor, truth = _by_itself(lm, ids, mask)  # before a way changes the model, and this with it
    for way in ways:
        try:
            logits = logits_of(lm, ids, mask, way(lm, Compute()))
            gap = (factor * logits - truth).abs().max().item()
            problem = f"the two differ by {gap:.2g} where the largest logit is 100"
        except Exception as error:  # layers fail in many ways at options that are not theirs
            if lacks_memory(error):
                raise
            gap, problem = float("nan"), typed_reason_of(error)
        if gap <= ROUNDING[torch.float32]:
            return way(lm, compute)
    raise refusal(lm, MORE, problem)


def refusal(lm, what: str, problem: str) -> UserError:
    """Return the error about a model. What is known to be special about it replaces `problem`."""
    problem = beyond(lm.config) or problem
    return UserError(f"cannot train this model: {type(lm).__name__} {what} ({problem}); {KNOWN}")


def _by_itself(lm, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor that makes 100 of the largest logit, and what `alone` returns with it:
    small logits would hide a soft cap. UserError: the model's own forward pass fails"""
    try:
        factor = 100 / alone(lm, ids, mask, 1.0).abs().max()
        return factor, alone(lm, ids, mask, factor)
    except Exception as error:  # in many ways
        if lacks_memory(error):
            raise
        what = MORE if beyond(lm.config) else "does not compute"
        raise refusal(lm, what, typed_reason_of(error)) from error


def plain_options(lm, compute: Compute) -> Compute:
    """Return `compute` as it is: all layers get the same options."""
    return compute


def _packed(lm, compute: Compute, ids: Tensor, mask: Tensor) -> Compute:
    """Return `compute` with packed rows if no turn sees another one in them, or else as it is."""
    from ppo.model.layers import with_turns
    from ppo.model.packing import stop_packing, use_packing

    in_padded = logits_of(lm, ids, mask, compute)
    exact = logits_of(lm, ids, mask, replace(compute, dtype=torch.float32))
    rounding = allowed(compute.dtype, in_padded, exact)
    before = use_packing(lm)
    rows = with_turns(lm, compute)
    try:
        if compute.arrange is not padded:
            raise ValueError("its layers have masks of their own")
        logits = logits_of(lm, ids, mask, rows)
        gap = differ(logits, in_padded)
        if not gap <= rounding:
            raise ValueError(f"packed and padded rows differ by {gap:.2g} at logits of 100")
        of_first = mask[:1].sum()  # its responses come first
        for row in (0, 1):
            other = ids.clone()
            other[1 - row] = (other[1 - row] + 1) % lm.config.vocab_size
            kept = slice(None, of_first) if row == 0 else slice(of_first, None)
            gap = differ(logits[kept], logits_of(lm, other, mask, rows)[kept])
            if not gap <= LEAK[compute.dtype]:
                raise ValueError(f"a turn sees another one of its row ({gap:.2g} at logits of 100)")
    except Exception as error:  # layers fail in many ways at options that are not theirs
        if lacks_memory(error):
            raise
        stop_packing(lm, before)
        reason = reason_of(error)
        if not isinstance(error, ValueError):
            reason = f"some of its layers need rows of one turn ({reason})"
        print_status(f"{type(lm).__name__} is trained in padded rows, not in packed ones: {reason}")
        return compute
    return rows


def allowed(dtype: torch.dtype, rounded: Tensor, exact: Tensor) -> float:
    """Return the largest difference to the logits `rounded` that rounding explains in `dtype`.

    exact: the same logits in float32; in bfloat16 a deep model is far from them
    """
    return max(ROUNDING[dtype], 2 * differ(rounded, exact))


def logits_of(lm, ids: Tensor, mask: Tensor, compute: Compute) -> Tensor:
    """Return the logits (R, V) before each response token, by the trainer's pieces."""
    with precision(ids.device, compute.dtype):
        hidden, mask, options = embed(lm, ids, mask, compute)
        decisions = lm.model.norm(decide(lm.model.layers, hidden, mask, options, compute))
        return linear(decisions, lm.lm_head.weight).float()


def alone(lm, ids: Tensor, mask: Tensor, factor: Tensor | float) -> Tensor:
    """Return the same logits, (R, V), by the model's own forward pass, each response without
    anything behind it. What lm_head returns is multiplied by `factor`."""
    logits = []
    with lm.lm_head.register_forward_hook(lambda head, inputs, output: factor * output):
        for row, asked in zip(ids, mask, strict=True):
            ends = (asked & ~asked.roll(-1)).nonzero()[:, 0] + 1
            for end in ends.tolist():
                out = lm(row[None, :end], use_cache=False, logits_to_keep=ASKED + 1)
                logits.append(out.logits[0, :-1])
    return torch.cat(logits).float()


def differ(these: Tensor, those: Tensor) -> float:
    """Return the largest difference of two logits, on a scale where the largest logit is 100."""
    return (100 / those.abs().max() * (these - those)).abs().max().item()
