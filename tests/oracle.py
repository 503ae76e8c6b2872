"""A naive oracle of the method: one turn at a time, in float64, on transformers' own forward.

It knows no batches, padding, masks, merged rows or ranks. `check` draws a case from a seed and
computes the gradient of one minibatch here and with the project. It returns how far apart they are.

    python tests/oracle.py 0 100                                    # seeds 0 .. 99
    torchrun --nproc-per-node 2 tests/oracle.py 0 20
"""

import copy
import os
import random
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from conftest import make_settings  # noqa: E402
from oracle_cases import INF, draw_case, draw_turns, make_batch, make_model  # noqa: E402

import ppo.model.decoder as decoder  # noqa: E402
from common.clip import clip_range  # noqa: E402
from common.ranks import ALONE  # noqa: E402
from ppo.advantages import make_estimator, whiten  # noqa: E402
from ppo.agent import Agent  # noqa: E402
from ppo.criticless import CriticlessAgent  # noqa: E402
from ppo.distributed import LaunchedRanks, make_stepper  # noqa: E402
from ppo.episode_ratios import with_episode_ratios  # noqa: E402
from ppo.kl import KLPenalty  # noqa: E402
from ppo.model.actor_critic import Reference  # noqa: E402
from ppo.model.lora import AdaptersOff  # noqa: E402
from ppo.model.make import build  # noqa: E402
from ppo.terms import KLInLoss, make_old_logps, make_policy_loss, terms_of  # noqa: E402

NAMES = ("gamma_step", "lam_step", "gamma_token", "lam_token")


class Naive:
    """Copies of the model's parts in float64. The actor is transformers' own model."""

    def __init__(self, model, reference=None):
        self.actor, self.model = _double(model.lm), model
        self.reference = (
            _double(reference) if reference is not None else _without_adapters(self.actor)
        )
        if hasattr(model, "head"):
            self.critic = [_double(part) for part in (model.branch, model.branch_norm, model.head)]

    def logps(self, lm, turn):
        """Log-probs and entropies of the sampled tokens, one turn by itself."""
        ids = torch.tensor([turn.prompt + turn.ids])
        logits = lm(input_ids=ids, use_cache=False).logits[0, len(turn.prompt) - 1 : -1] / turn.heat
        table = logits.log_softmax(-1)
        return table[range(len(turn.ids)), turn.ids], -(table.exp() * table).sum(-1)

    def initial(self, turn):
        """Log-probs of the frozen initial policy."""
        return self.logps(self.reference, turn)[0]

    def values(self, prompt, ids=(0,)):
        """V before each token of a response."""
        body, (branch, norm, head) = self.actor.model, self.critic
        x = body.embed_tokens(torch.tensor([[*prompt, *ids]]))
        length = x.shape[1]
        rotary = body.rotary_emb(x, torch.arange(length)[None])
        mask = torch.full((length, length), -1e30, dtype=torch.float64).triu(1)[None, None]
        for layer in [*body.layers[: self.model.n_trunk]]:
            x = layer(x, attention_mask=mask, position_embeddings=rotary)
        x = x.detach()  # the value loss must not move the trunk
        for layer in branch:
            x = layer(x, attention_mask=mask, position_embeddings=rotary)
        return head(norm(x))[0, len(prompt) - 1 : -1, 0]

    def gradients(self) -> dict[str, torch.Tensor]:
        parts = {"lm.": self.actor}
        if hasattr(self, "critic"):
            parts |= zip(("branch.", "branch_norm.", "head."), self.critic, strict=True)
        return {begin + name: p.grad for begin, part in parts.items()
                for name, p in part.named_parameters() if p.grad is not None}  # fmt: skip


def _double(module):
    made = copy.deepcopy(module).double()
    if hasattr(made, "config"):
        made.config._attn_implementation = "eager"
    return made


def _without_adapters(actor):
    """The initial policy of a LoRA run."""
    made = copy.deepcopy(actor)
    for module in made.modules():
        if hasattr(module, "lora_A"):
            module.enable_adapters(False)
    return made


def kl_estimate(name: str, logps, reference):
    gap = logps - reference
    return {"k1": gap, "k2": gap * gap / 2, "k3": torch.exp(-gap) - 1 + gap}[name]


def gae(case, turns, rewards, values, final) -> tuple[list, list]:
    """Advantages and returns of one environment, by the recursion, from the last token backwards.

    rewards, values: per turn, per token; final: turn -> V of what followed it if it was cut off
    """
    gamma, lam, gamma_token, lam_token = case.discounts
    if case.estimator == "token-gae":
        gamma, lam = gamma_token, lam_token
    advantages, returns = [None] * len(turns), [None] * len(turns)
    for t in reversed(range(len(turns))):
        ahead, later, v = final[t], 0.0, values[t]
        if turns[t].kind == "go" and t + 1 < len(turns):
            ahead, later = values[t + 1][0], advantages[t + 1][0]
        if case.estimator == "turn-gae":
            a = sum(rewards[t]) + gamma * ahead - v[0] + gamma * lam * later
            advantages[t], returns[t] = [a] * len(v), [a + v[0]] * len(v)
            continue
        a = [0.0] * len(v)
        a[-1] = rewards[t][-1] + gamma * ahead - v[-1] + gamma * lam * later
        for k in reversed(range(len(v) - 1)):
            a[k] = (
                rewards[t][k] + gamma_token * v[k + 1] - v[k] + gamma_token * lam_token * a[k + 1]
            )
        advantages[t], returns[t] = a, [x + y for x, y in zip(a, v, strict=True)]
    return advantages, returns


def compare_episodes(case, turns, rewards) -> list[list]:
    """Advantages of each turn's tokens where episodes are compared."""
    episodes = {}
    for n, mine in enumerate(turns):
        for t, turn in enumerate(mine):
            episodes.setdefault((n, turn.episode), []).append(t)
    paid = {key: [sum(rewards[key[0]][t]) for t in ts] for key, ts in episodes.items()}
    kind = {(n, e): ("fault", n, e) if turns[n][ts[-1]].kind == "fault" else turns[n][ts[0]].seed
            for (n, e), ts in episodes.items()}  # fmt: skip
    advantages = [[None] * len(mine) for mine in turns]
    for (n, e), ts in episodes.items():
        same = [key for key in episodes if kind[key] == kind[n, e]]
        totals, own = [sum(paid[key]) for key in same], sum(paid[n, e])
        for i, t in enumerate(ts):
            a = own - np.mean(totals)
            if case.estimator == "rloo":
                a = own - (sum(totals) - own) / (len(same) - 1) if len(same) > 1 else 0.0
            elif case.estimator == "grpo":
                a /= (np.std(totals, ddof=1) if len(same) > 1 else 0.0) + 1e-4
            else:
                ahead = partial(discounted, case.discounts[0])
                alike = [
                    ahead(paid[m, f][j:])
                    for m, f in same
                    for j, u in enumerate(episodes[m, f])
                    if turns[m][u].shown == turns[n][t].shown
                ]
                a += ahead(paid[n, e][i:]) - np.mean(alike)
            advantages[n][t] = [a] * len(turns[n][t].ids)
    return advantages


def discounted(gamma: float, rewards) -> float:
    return sum(gamma**k * reward for k, reward in enumerate(rewards))


# ---- the project and the oracle on one minibatch ------------------------------------------------


def check(seed: int, ranks=ALONE) -> float:
    """Return the largest error of a gradient, relative to the largest gradient. Rank 0 alone knows
    it; others return 0."""
    r = random.Random(seed)
    case = draw_case(r)
    n_env = 2 * case.group or 4
    turns = [draw_turns(case, r, n) for n in range(n_env)]
    nexts = [r.choices(range(1, 60), k=3) for _ in turns]
    decoder.LOGITS_PER_CHUNK = case.chunk
    model, reference = make_models(case, seed)
    kl = (KLInLoss if case.kl_in == "loss" else KLPenalty)(case.kl, case.estimate, None)
    shared = f"{case.ratio_of}:" * (case.ratio_of != "token")
    clip = clip_range(f"{shared}{case.clip}:{case.clip + case.higher}")
    settings = make_settings(
        clip=clip, value_clip=case.value_clip, first_token_weight=case.first,
        entropy_coef=case.entropy, whiten=case.whiten, minibatch=sum(map(len, turns)) // 2,
    )  # fmt: skip
    kind = CriticlessAgent if case.grouped else Agent
    agent = (with_episode_ratios(kind) if case.ratio_of == "episode" else kind)(
        settings, model, torch.Generator().manual_seed(seed), make_stepper(ranks, 0, False),
        policy_loss=make_policy_loss(clip, case.cap), old_logps=make_old_logps(clip),
        terms=terms_of(kl),
    )  # fmt: skip
    batch = make_batch(case, turns, nexts, ranks)
    plan = agent.plan(batch)
    batch.score(model, AdaptersOff(model) if case.lora else Reference(reference), plan[0])
    batch.penalise_kl(kl)
    discounts = dict(zip(NAMES, case.discounts, strict=True))
    batch.compute_returns(make_estimator(SimpleNamespace(advantages=case.estimator, **discounts)))
    before = Naive(model, None if case.lora else reference)
    with torch.no_grad():
        known = Known(case, before, turns, nexts)
        jitter(model, seed + 1, 0.01)  # so that ratios are not 1, nor values what they were
    after = Naive(model)
    advantages = whiten(batch.advantages, batch.response_mask) if case.whiten else batch.advantages
    agent._minibatch(batch, advantages, plan[0][0])
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            ranks.sum(p.grad)
    if ranks.rank:
        return 0.0
    minibatch = [divmod(row, n_env) for row in plan[0][0]]
    known.loss(after, [(n, t) for t, n in minibatch]).backward()
    return distance(model, after.gradients())


def make_models(case, seed: int):
    """The actor-critic, with random head, branch and adapters, and another model as pi_0."""
    lm, reference = make_model(case.kind, seed), make_model(case.kind, seed)
    jitter(reference, seed, 0.02)
    layers = None if case.grouped else case.layers
    model = build(lm, layers, packed=case.packed, recompute=case.recompute, lora_rank=case.lora)
    jitter(model, seed + 2, 0.05, but=("lm.model", "lm.lm_head"))
    return model, reference


def jitter(model, seed: int, scale: float, but: tuple[str, ...] = ()) -> None:
    """Move the parameters that are trained; but: beginnings of names, adapters move all the same"""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = scale * torch.randn(p.shape, generator=generator)
            if p.requires_grad and ("lora_" in name or not name.startswith(but or ("-",))):
                p.add_(noise)


class Known:
    """What a batch knows before the update: old log-probs, those of pi_0, values, advantages."""

    def __init__(self, case, naive: Naive, turns, nexts):
        self.case, self.turns = case, turns
        each = lambda find: [[find(turn) for turn in mine] for mine in turns]  # noqa: E731
        self.old = each(lambda turn: naive.logps(naive.actor, turn)[0])
        self.initial = each(lambda turn: naive.initial(turn))
        rewards = [[self.paid(n, t) for t in range(len(mine))] for n, mine in enumerate(turns)]
        if case.grouped:
            self.advantages = compare_episodes(case, turns, rewards)
        else:
            self.values = each(lambda turn: naive.values(turn.prompt, turn.ids).tolist())
            self.advantages, self.returns = [], []
            for n, mine in enumerate(turns):
                final = [self.followed(naive, turn, nexts[n]) for turn in mine]
                found = gae(case, mine, rewards[n], self.values[n], final)
                self.advantages.append(found[0])
                self.returns.append(found[1])
        flat = np.array([a for mine in self.advantages for turn in mine for a in turn])
        self.shift, self.scale = (flat.mean(), flat.std() + 1e-8) if case.whiten else (0.0, 1.0)

    def paid(self, n: int, t: int) -> list[float]:
        """The reward of each token, the KL penalty included."""
        turn, coef = self.turns[n][t], self.case.kl * (self.case.kl_in == "reward")
        penalty = kl_estimate(self.case.estimate, self.old[n][t], self.initial[n][t])
        rewards = (-coef * penalty).tolist()
        rewards[-1] += turn.reward
        return rewards

    def followed(self, naive, turn, following) -> float:
        """V of what follows a turn at which the recursion begins."""
        if turn.kind == "end" or turn.kind == "limit" and not self.case.proper:
            return 0.0
        return naive.values(following if turn.kind == "go" else turn.final).item()

    def loss(self, naive: Naive, chosen: list[tuple[int, int]]):
        """The loss of a minibatch of turns (n, t), with one denominator for each of its means."""
        case, tokens, weights, total, value = self.case, 0, 0.0, 0.0, 0.0
        for n, t in chosen:
            turn, old = self.turns[n][t], self.old[n][t]
            logps, entropies = naive.logps(naive.actor, turn)
            gains = (torch.tensor(self.advantages[n][t]) - self.shift) / self.scale
            ratio = (logps - old).exp()
            if case.ratio_of != "token":
                ratio = self.shared_ratio(naive, n, t, chosen) * (logps - logps.detach()).exp()
            ratio = ratio.clamp(max=case.cap or INF)
            clipped = ratio.clamp(1 - case.clip, 1 + case.clip + case.higher)
            total = total + torch.maximum(-gains * ratio, -gains * clipped).sum()
            total = total - case.entropy * entropies.sum()
            if case.kl_in == "loss":
                estimate = kl_estimate(case.estimate, logps, self.initial[n][t])
                total = total + case.kl * estimate.sum()
            tokens += len(turn.ids)
            if not case.grouped:
                v, v0 = naive.values(turn.prompt, turn.ids), torch.tensor(self.values[n][t])
                goal = torch.tensor(self.returns[n][t])
                near = v0 + (v - v0).clamp(-case.value_clip, case.value_clip)
                error = 0.5 * torch.maximum((v - goal) ** 2, (near - goal) ** 2)
                weight = torch.full_like(error, float(case.first != INF))  # inf: the first alone
                weight[0] = 1.0 if case.first == INF else case.first
                value, weights = value + (weight * error).sum(), weights + weight.sum()
        return total / tokens + (value / weights if not case.grouped else 0.0)

    @torch.no_grad()
    def shared_ratio(self, naive: Naive, n: int, t: int, chosen: list[tuple[int, int]]):
        """The geometric mean of the ratios of the tokens of turn t, or of its episode's turns."""
        together, ends = [t], [turn.kind != "go" for turn in self.turns[n]]
        if self.case.ratio_of == "episode":
            together = [u for m, u in chosen if m == n and sum(ends[:u]) == sum(ends[:t])]
        moved = [naive.logps(naive.actor, self.turns[n][u])[0] - self.old[n][u] for u in together]
        ratios = torch.cat(moved).exp()
        return ratios.prod() ** (1 / len(ratios))


def distance(model, wanted: dict) -> float:
    errors, scale = [], 1e-12
    for name, p in model.named_parameters():
        if p.requires_grad:
            goal = wanted.get(name, torch.zeros_like(p))
            errors.append((p.grad - goal).abs().max().item())
            scale = max(scale, goal.abs().max().item())
    return max(errors) / scale


if __name__ == "__main__":
    ranks = LaunchedRanks() if "WORLD_SIZE" in os.environ else ALONE
    found = {seed: check(seed, ranks) for seed in range(*map(int, sys.argv[1:3]))}
    worst = max(found, key=found.get)
    print(f"{len(found)} cases, the largest error {found[worst]:.1e} with seed {worst}")
    sys.exit(found[worst] > 2e-4)
