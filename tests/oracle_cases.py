"""Random cases for the oracle: settings, a small model, turns, and the project's batch of them."""

import random
from functools import partial
from types import SimpleNamespace

import torch
import transformers
from conftest import make_collection, make_prompt, make_response, make_step

from storage.merged import merged
from storage.minibatch import one_per_turn
from storage.schedules import at_time_limits, never

INF = float("inf")
VOCABULARY = 60
GROUPED = ("rloo", "grpo", "gigpo")


def draw_case(r: random.Random) -> SimpleNamespace:
    """Draw the settings of a case."""
    estimator = r.choice(["dual-gae", "token-gae", "turn-gae", *GROUPED])
    grouped = estimator in GROUPED
    kl_in = r.choice(["reward", "loss", "none"])
    return SimpleNamespace(
        estimator=estimator, grouped=grouped, group=r.choice([2, 3]) if grouped else 0,
        e_len=r.choice([2, 3, 5]), proper=r.random() < 0.5, merge=r.choice(["on", "off", "auto"]),
        heats=r.choice([(1.0,), (1.0, 0.7, 1.6)]), budget=r.choice([10**6, 40, 1]),
        discounts=[r.choice([0.5, 0.9, 0.95, 1.0]) for _ in range(4)], kl_in=kl_in,
        kl=0.0 if kl_in == "none" else r.choice([0.05, 0.5]),
        estimate=r.choice(["k2", "k3"] if kl_in == "loss" else ["k1", "k2", "k3"]),
        layers=r.choice([0, 1, 2]), value_clip=r.choice([INF, 0.1, 0.5]),
        first=r.choice([1.0, 3.0, INF]), entropy=r.choice([0.0, 0.01]), whiten=r.random() < 0.5,
        recompute=r.random() < 0.3, packed=r.random() < 0.4, lora=r.choice([0, 0, 0, 2]),
        kind=r.choice(["Qwen2", "Llama", "Qwen3"]), cap=r.choice([None, None, 1.5]),
        clip=r.choice([0.2, 0.05]), chunk=r.choice([2**25, 120]),
        higher=r.choice([0.0, 0.0, 0.08]), ratio_of=r.choice(["token", "token", "turn", "episode"]),
    )  # fmt: skip


def make_model(kind: str, seed: int):
    torch.manual_seed(seed)
    settings = dict(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=bool(seed % 2),
        initializer_range=0.2, eos_token_id=0, bos_token_id=None,
    )  # fmt: skip
    settings |= {"head_dim": 8} if kind == "Qwen3" else {}
    config = getattr(transformers, f"{kind}Config")(**settings)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def draw_turns(case, r: random.Random, n: int) -> list[SimpleNamespace]:
    """Draw the turns of environment n. kind: goes on, terminated, at a time limit, or at a fault"""
    ids = partial(r.choices, range(1, VOCABULARY))
    lengths = [r.choice([1, 2, 3]) for _ in range(2)] if case.grouped else [case.e_len]
    turns, before = [], []
    for episode, length in enumerate(lengths):
        for t in range(length):
            kind = r.choice(["go", "go", "go", "end", "limit", "fault"])
            if case.grouped:
                kind = "go" if t < length - 1 else r.choice(["end", "end", "fault"])
            response, prompt = ids(k=r.choice([1, 1, 2, 3, 5])), before + ids(k=r.randrange(1, 6))
            turns.append(SimpleNamespace(
                prompt=prompt, ids=response, kind=kind, episode=episode, shown=r.choice("ab"),
                reward=0.0 if kind == "fault" else r.choice([0.0, 1.0, -0.1, 0.25]),
                final=ids(k=3), heat=r.choice(case.heats),
                seed=2 * episode + 100 * (n // max(1, case.group)),
            ))  # fmt: skip
            goes_on = kind == "go" and r.random() < 0.6
            before = prompt + response[:-1] + ids(k=1) if goes_on else []
    return turns


def make_batch(case, turns, nexts, ranks):
    """Return the project's Batch of these turns; each rank puts in its share."""
    layouts = {"on": partial(merged, worth=0.0), "off": one_per_turn, "auto": merged}
    rules = {"needs_bootstrap": never} if case.grouped else {}
    if case.proper and not case.grouped:
        rules = {"needs_bootstrap": at_time_limits}
    collection = make_collection(
        0 if case.grouped else case.e_len, len(turns), case.budget, case.group,
        critic=not case.grouped, ranks=ranks, layout=layouts[case.merge], **rules,
    )  # fmt: skip
    for k, n in enumerate(ranks.share(len(turns))):
        for turn in turns[n]:
            said = make_response(turn.prompt, turn.ids, temperature=turn.heat)
            step = make_step(
                reward=turn.reward, terminated=turn.kind == "end", seed=turn.seed,
                truncated=turn.kind in ("limit", "fault"), episode=turn.episode,
                fault="f" * (turn.kind == "fault"), previous_digest=turn.shown,
            )  # fmt: skip
            collection.keep_response(k, said)
            collection.insert(k, step)
            if collection.needs_bootstrap(step):
                collection.bootstrap(k, make_prompt(turn.final))
        collection.finish(k, make_prompt(nexts[n]))
    return collection.join()
