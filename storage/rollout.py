"""RolloutStorage: exactly E turns of each of N environments, from prompt ids to advantages.

Collection fills ragged lists (`act`, `insert`, `limit`, `finish`); `join` brings those of all ranks
together; `score` pads once into (E, N, T) tensors over response tokens, T being the longest
response. Where turns are flat, turn t of environment n is row t * N + n. `after_update` empties the
storage for the next batch.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from storage.episodes import Episodes
from storage.minibatch import micro_batches
from storage.ranks import ALONE, Ranks


class RolloutStorage:
    """n_env: environments of all ranks, of which this one collects its share, counted from 0

    token_budget: padded tokens per forward pass; episodes: the record of finished ones
    """

    def __init__(
        self,
        e_len: int,
        n_env: int,
        token_budget: int,
        episodes: Episodes,
        device="cpu",
        ranks: Ranks = ALONE,
    ):
        self.e_len, self.n_env = e_len, n_env
        self.token_budget, self.device, self.ranks = token_budget, device, ranks
        self.episodes = episodes
        self.after_update()

    def after_update(self) -> None:
        """Forget the batch; environments and memories go on where they are."""
        E, N = self.e_len, len(self.ranks.share(self.n_env))
        self.responses = [[None] * N for _ in range(E)]  # of the engine, with their prompts
        self.steps = [[None] * N for _ in range(E)]  # of the environments
        self.turns = [0] * N  # completed by each environment
        self.next_prompts = [None] * N  # s_{E+1}: its value is the bootstrap
        self.values, self.trusted = None, False
        self.limit_prompts = {}  # (t, n) -> the prompt at the final observation of a time limit

    # ---- collection -------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return all(prompt is not None for prompt in self.next_prompts)

    def wants(self, n: int) -> bool:
        """Whether environment n has turns left in this batch."""
        return self.turns[n] < self.e_len

    def act(self, n: int, response) -> None:
        self.responses[self.turns[n]][n] = response

    def insert(self, n: int, step) -> None:
        assert self.wants(n), f"environment {n} already has its {self.e_len} turns"
        self.steps[self.turns[n]][n] = step
        self.turns[n] += 1

    def limit(self, n: int, prompt) -> None:
        """The turn just inserted met its time limit; prompt: what the agent would have seen."""
        self.limit_prompts[self.turns[n] - 1, n] = prompt

    def finish(self, n: int, prompt) -> None:
        """The prompt after the last turn of environment n."""
        self.next_prompts[n] = prompt

    def join(self) -> None:
        """Bring the turns of all ranks together; they are recorded only now, so that who answered
        first makes no difference."""
        assert all(t == self.e_len for t in self.turns), (
            f"turns per environment {self.turns}, not {self.e_len}"
        )
        first = self.ranks.share(self.n_env)[0]
        limits = [((t, first + n), prompt) for (t, n), prompt in self.limit_prompts.items()]
        self.limit_prompts = dict(self.ranks.gather(limits))
        self.responses = transposed(self.ranks.gather(transposed(self.responses)))
        self.steps = transposed(self.ranks.gather(transposed(self.steps)))
        self.next_prompts = self.ranks.gather(self.next_prompts)
        for turn in self.steps:
            for n, step in enumerate(turn):
                self.episodes.insert(n, step)

    # ---- scoring ----------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, actor_critic, reference, trust_engine: bool = False) -> None:
        """log pi_old, log pi_0 and V of every response token, with the model that is trained.

        trust_engine: take log pi_old from the engine, which saves the actor's part of the pass
        """
        self._pad()
        self.trusted = trust_engine
        for batch, mask in self.batches():
            turns = batch.ids, batch.response_mask
            if trust_engine:
                self.fill(self.values, batch.rows, mask, actor_critic.values(*turns))
            else:
                scores = actor_critic(*turns)
                self.fill(self.logps, batch.rows, mask, scores.logps)
                self.fill(self.values, batch.rows, mask, scores.values)
            self.fill(self.ref_logps, batch.rows, mask, reference(*turns))
        for computed in (self.logps, self.values, self.ref_logps):
            self.ranks.sum(computed)  # each row comes from one rank
        if trust_engine:
            self.logps = self._engine_logps()
        self._score_ends(actor_critic)

    @torch.no_grad()
    def score_values(self, actor_critic) -> None:
        """V alone, for the critic's warm-up: while the actor stands still, KL is 0."""
        if self.values is None:
            self._pad()
        self.values.zero_()
        for batch, mask in self.batches():
            values = actor_critic.values(batch.ids, batch.response_mask)
            self.fill(self.values, batch.rows, mask, values)
        self.ranks.sum(self.values)
        self._score_ends(actor_critic)

    def batches(self, rows: list[int] | None = None):
        """This rank's micro-batches of `rows` (default: all), with their masks (B, T) here."""
        prompts = [r.prompt.ids for turn in self.responses for r in turn]
        responses = [r.ids for turn in self.responses for r in turn]
        rows = range(len(prompts)) if rows is None else rows
        cut = (self.token_budget, self.device, self.ranks)
        for batch in micro_batches(prompts, responses, rows, *cut):
            yield batch, self.response_mask.flatten(0, 1)[batch.rows]

    @staticmethod
    def fill(tensor: Tensor, rows: Tensor, mask: Tensor, flat: Tensor) -> None:
        """Write flat (R,) results of `rows` into an (E, N, T) tensor, where mask (B, T) is True."""
        block = torch.zeros(mask.shape, dtype=tensor.dtype, device=tensor.device)
        block[mask] = flat.to(tensor.dtype)
        tensor.flatten(0, 1)[rows] = block

    @staticmethod
    def take(tensor: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """What `fill` writes: the entries of `rows` where mask (B, T) is True, flat (R,)."""
        return tensor.flatten(0, 1)[rows][mask]

    def _pad(self) -> None:
        E, N = self.e_len, self.n_env
        lengths = torch.tensor([[len(r.ids) for r in turn] for turn in self.responses])
        T = int(lengths.max())
        shape = dict(size=(E, N, T), device=self.device)
        self.response_mask = torch.arange(T, device=self.device) < lengths.to(
            self.device
        ).unsqueeze(-1)  # (E, N, T)
        self.logps, self.ref_logps = torch.zeros(**shape), torch.zeros(**shape)
        self.values, self.rewards = torch.zeros(**shape), torch.zeros(**shape)
        rewards = torch.tensor([[step.reward for step in turn] for turn in self.steps])
        last = (lengths - 1).unsqueeze(-1).to(self.device)
        self.rewards.scatter_(-1, last, rewards.unsqueeze(-1).to(self.device))
        self.terminated = torch.tensor([[s.terminated for s in turn] for turn in self.steps])
        self.truncated = torch.tensor([[s.truncated for s in turn] for turn in self.steps])

    def _score_ends(self, actor_critic) -> None:
        """V(s_{E+1}) (N,) and V of the final observations of time limits.

        A prompt's value stands before the first token of a response, so each gets a response of
        one token; which one does not matter, for nothing after the prompt is looked at.
        """
        limits = sorted(self.limit_prompts)
        prompts = self.next_prompts + [self.limit_prompts[at] for at in limits]
        ids = [prompt.ids for prompt in prompts]
        values = torch.zeros(len(ids))
        cut = (range(len(ids)), self.token_budget, self.device, self.ranks)
        for batch in micro_batches(ids, [[0]] * len(ids), *cut):
            values[batch.rows] = actor_critic.values(batch.ids, batch.response_mask).float().cpu()
        self.ranks.sum(values)
        self.bootstrap = values[: self.n_env]
        self.limit_values = dict(zip(limits, values[self.n_env :].tolist(), strict=True))

    # ---- returns ----------------------------------------------------------------------------

    def penalise_kl(self, kl) -> None:
        """Take beta times the KL estimate off the reward of every response token (paper, 3.1)."""
        estimate = kl.estimate(self.logps, self.ref_logps)
        self.rewards -= kl.coef * torch.where(self.response_mask, estimate, 0.0)

    def compute_returns(self, estimator: Callable, use_proper_time_limits: bool) -> None:
        """Fill advantages and returns, (E, N, T).

        estimator: `dual_discount_gae` with its four discounts bound
        use_proper_time_limits: bootstrap from V of the final observation of a time limit; else the
            limit ends the episode like a failure. An environment that failed is always a cut that
            V bootstraps: the policy had no part in it.
        """
        self.next_values = torch.cat([self.values[1:, :, 0].cpu(), self.bootstrap.unsqueeze(0)])
        self.next_values[self.terminated | self.truncated] = 0.0
        self.cut = self.truncated & ~self.terminated  # (E, N), ends that are no outcome
        if not use_proper_time_limits:
            self.cut &= torch.tensor([[bool(step.fault) for step in turn] for turn in self.steps])
        for (t, n), value in self.limit_values.items():
            if self.cut[t, n]:
                self.next_values[t, n] = value
        self.episode_ends = (self.terminated | self.truncated).to(self.device)
        self.advantages, self.returns = estimator(
            self.rewards,
            self.values,
            self.response_mask,
            self.next_values.to(self.device),
            self.episode_ends,
        )

    # ---- figures ----------------------------------------------------------------------------

    def metrics(self) -> dict[str, float | None]:
        """rollout/*, engine/* and kl/* of the scored batch; episodes: the last 100 that ended."""
        mask = self.response_mask
        responses = [r for turn in self.responses for r in turn]
        steps = [s for turn in self.steps for s in turn]
        share = lambda flags: sum(flags) / len(flags)
        kl = self.logps - self.ref_logps
        acting = mask & self._action_mask(responses, steps)
        ended = {f"rollout/{name}": mean for name, mean in self.episodes.means().items()}
        return ended | {
            "rollout/valid_action": share([s.valid for s in steps]),
            "rollout/reward": sum(s.reward for s in steps) / len(steps),
            "rollout/response_tokens": mask.sum().item() / len(steps),
            "rollout/truncated_responses": share([r.truncated for r in responses]),
            "rollout/prompt_overflow": share([r.prompt.overflow for r in responses]),
            "rollout/prompt_tokens": sum(len(r.prompt.ids) for r in responses) / len(steps),
            **self._engine_gap(),
            "kl/ref": kl[mask].mean().item(),
            "kl/ref_k3": (torch.exp(-kl) - 1 + kl)[mask].mean().item(),  # never negative
            "kl/ref_think": _mean(kl[mask & ~acting]),
            "kl/ref_action": _mean(kl[acting]),
        }

    def _engine_gap(self) -> dict[str, float | None]:
        """How far the engine's log-probs are from the trainer's. None where they stand in for
        them: the largest gap is then in ppo/ratio_first_minibatch."""
        gap = (self._engine_logps() - self.logps)[self.response_mask]
        p99 = gap.abs().quantile(0.99).item() if len(gap) < 2**24 else None
        figures = {
            "engine/logp_gap_mean": gap.abs().mean().item(),
            "engine/logp_gap_p99": p99,
            "engine/ratio_outside": ((gap.exp() - 1).abs() > 0.1).float().mean().item(),
        }
        return dict.fromkeys(figures) if self.trusted else figures

    def _engine_logps(self) -> Tensor:
        """What the engine said of the tokens when it sampled them, (E, N, T)."""
        said = torch.zeros_like(self.logps)
        flat = [p for turn in self.responses for response in turn for p in response.logps]
        said[self.response_mask] = torch.tensor(flat, device=self.device)
        return said

    def _action_mask(self, responses, steps) -> Tensor:
        """(E, N, T), True from the token on in which the ACTION marker of a response begins."""
        turns = zip(responses, steps, strict=True)
        starts = [r.action_token(step.action_at) for r, step in turns]
        starts = torch.tensor(starts, device=self.device).view(self.e_len, self.n_env, 1)
        return torch.arange(self.logps.shape[-1], device=self.device) >= starts


def transposed(rows: list) -> list[list]:
    return [list(column) for column in zip(*rows, strict=True)]


def _mean(tensor: Tensor) -> float | None:
    return tensor.mean().item() if tensor.numel() else None
