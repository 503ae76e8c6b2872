"""RolloutStorage: exactly E turns of each of N environments, from prompt ids to advantages.

Collection fills ragged lists (`act`, `insert`, `limit`, `finish`), and `join` brings the lists of
all ranks together. `score` pads once, into (E, N, T) tensors over response tokens, where T is the
longest response. Where turns are flat, turn t of environment n is row t * N + n. The metrics of a
batch are in `storage.figures`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from storage.episodes import Episodes
from storage.minibatch import micro_batches
from storage.ranks import ALONE, Ranks


class RolloutStorage:
    """Turns of all N environments. This rank collects its share of them, numbered from 0.

    e_len: E, turns of each environment; n_env: N, environments of all ranks together
    token_budget: padded tokens of one forward pass; episodes: `Episodes` that outlive the batch
    """

    def __init__(
        self, e_len: int, n_env: int, token_budget: int, ranks: Ranks = ALONE, episodes=None
    ):
        self.e_len, self.n_env, self.token_budget = e_len, n_env, token_budget
        self.ranks, self.device = ranks, ranks.device
        self.episodes = episodes or Episodes(n_env)
        self.after_update()

    def after_update(self) -> None:
        """Forget the batch. Environments and memories go on from where they are."""
        E, N = self.e_len, len(self.ranks.share(self.n_env))
        self.responses = [[None] * N for _ in range(E)]  # from the engine, with their prompts
        self.steps = [[None] * N for _ in range(E)]  # from the environments
        self.turns = [0] * N  # turns that each environment has completed
        self.next_prompts = [None] * N  # s_{E+1} of each environment: its value is the bootstrap
        self.limit_prompts = {}  # (t, n) -> the prompt at the final observation of a time limit
        self.values, self.trusted = None, False  # trusted: the log-probs are the engine's

    def longer(self, times: int) -> "RolloutStorage":
        """Return an empty storage for `times` batches at once, with the same record of episodes."""
        length = times * self.e_len
        return RolloutStorage(length, self.n_env, self.token_budget, self.ranks, self.episodes)

    @property
    def full(self) -> bool:
        return all(prompt is not None for prompt in self.next_prompts)

    def wants(self, n: int) -> bool:
        """Whether environment n still has turns to take in this batch."""
        return self.turns[n] < self.e_len

    def act(self, n: int, response) -> None:
        """Keep the response that environment n is about to act on."""
        self.responses[self.turns[n]][n] = response

    def insert(self, n: int, step) -> None:
        """Keep what environment n answered, which completes its turn."""
        assert self.wants(n), f"environment {n} already has its {self.e_len} turns"
        self.steps[self.turns[n]][n] = step
        self.turns[n] += 1

    def limit(self, n: int, prompt) -> None:
        """Keep what the agent would have seen next, if the turn just inserted met a time limit."""
        self.limit_prompts[self.turns[n] - 1, n] = prompt

    def finish(self, n: int, prompt) -> None:
        """Keep the prompt that follows the last turn of environment n."""
        self.next_prompts[n] = prompt

    def join(self) -> None:
        """Bring the turns of all ranks together, so that each rank holds the whole batch."""
        complete = all(t == self.e_len for t in self.turns)
        assert complete, f"turns per environment {self.turns}, not {self.e_len}"
        first = self.ranks.share(self.n_env)[0]  # global index of this rank's environment 0
        limits = [((t, first + n), prompt) for (t, n), prompt in self.limit_prompts.items()]
        self.limit_prompts = dict(self.ranks.gather(limits))
        # Transposed, because ranks hold different environments of the same turns.
        self.responses = transposed(self.ranks.gather(transposed(self.responses)))
        self.steps = transposed(self.ranks.gather(transposed(self.steps)))
        self.next_prompts = self.ranks.gather(self.next_prompts)
        # Episodes are recorded in the order of turns: no figure depends on who answered first.
        for turn in self.steps:
            for n, step in enumerate(turn):
                self.episodes.insert(n, step)

    @torch.no_grad()
    def score(self, actor_critic, reference, trust_engine: bool = False) -> None:
        """Compute log pi_old, log pi_0 and V of every response token with the trained model.

        The engine's log-probs come from other kernels: with them no ratio would begin at 1.
        trust_engine: take them as log pi_old all the same, without the actor's pass (--tis-cap)
        """
        self._pad()
        self.trusted = trust_engine
        for batch, mask in self.batches():
            if trust_engine:
                values = actor_critic.values(batch.ids, batch.response_mask)
            else:
                scores = actor_critic(batch.ids, batch.response_mask)
                values = scores.values
                self.fill(self.logps, batch.rows, mask, scores.logps)
            self.fill(self.values, batch.rows, mask, values)
            self.fill(self.ref_logps, batch.rows, mask, reference(batch.ids, batch.response_mask))
        for computed in (self.logps, self.values, self.ref_logps):
            self.ranks.sum(computed)  # one rank has computed each row, the others hold zeros
        if trust_engine:
            self.logps = self.engine_logps()
        self._score_ends(actor_critic)

    @torch.no_grad()
    def score_values(self, actor_critic) -> None:
        """Compute V alone, for the critic's warm-up: while the actor stands still, the KL is 0."""
        if self.values is None:  # the first round on this batch
            self._pad()
        self.values.zero_()  # rows that other ranks compute must be zeros when summed
        for batch, mask in self.batches():
            values = actor_critic.values(batch.ids, batch.response_mask)
            self.fill(self.values, batch.rows, mask, values)
        self.ranks.sum(self.values)
        self._score_ends(actor_critic)

    def batches(self, rows: list[int] | None = None):
        """Yield this rank's micro-batches of `rows` (default: all), each with its mask (B, T)."""
        prompts = [response.prompt.ids for turn in self.responses for response in turn]
        responses = [response.ids for turn in self.responses for response in turn]
        rows = range(len(prompts)) if rows is None else rows
        budget, device = self.token_budget, self.device
        for batch in micro_batches(prompts, responses, rows, budget, device, self.ranks):
            yield batch, self.response_mask.flatten(0, 1)[batch.rows]

    @staticmethod
    def fill(tensor: Tensor, rows: Tensor, mask: Tensor, flat: Tensor) -> None:
        """Write the flat results (R,) of `rows` into (E, N, T), where mask (B, T) is True."""
        block = torch.zeros(mask.shape, dtype=tensor.dtype, device=tensor.device)
        block[mask] = flat.to(tensor.dtype)
        tensor.flatten(0, 1)[rows] = block  # flatten returns a view: this writes into `tensor`

    @staticmethod
    def take(tensor: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Read what `fill` writes: flat (R,), the entries of `rows` where mask (B, T) is True."""
        return tensor.flatten(0, 1)[rows][mask]

    def engine_logps(self) -> Tensor:
        """Return the log-probs that the engine reported when it sampled the tokens, (E, N, T)."""
        reported = torch.zeros_like(self.logps)
        flat = [logp for turn in self.responses for response in turn for logp in response.logps]
        # The mask selects turn by turn, environment by environment: in the order of `flat`.
        reported[self.response_mask] = torch.tensor(flat, device=self.device)
        return reported

    def _pad(self) -> None:
        """Make the (E, N, T) tensors and put each turn's reward on its last response token."""
        lengths = [[len(response.ids) for response in turn] for turn in self.responses]
        lengths = torch.tensor(lengths, device=self.device).unsqueeze(-1)  # (E, N, 1)
        T = int(lengths.max())
        self.response_mask = torch.arange(T, device=self.device) < lengths  # (E, N, T)
        zeros = torch.zeros(self.response_mask.shape, device=self.device)
        self.logps, self.ref_logps, self.values, self.rewards = (zeros.clone() for _ in range(4))
        rewards = torch.tensor([[step.reward for step in turn] for turn in self.steps])  # (E, N)
        self.rewards.scatter_(-1, lengths - 1, rewards.unsqueeze(-1).to(self.device))
        self.terminated = torch.tensor([[s.terminated for s in turn] for turn in self.steps])
        self.truncated = torch.tensor([[s.truncated for s in turn] for turn in self.steps])

    def _score_ends(self, actor_critic) -> None:
        """Compute V(s_{E+1}), (N,), and V of the final observations of time limits.

        A prompt's value stands before the first token of a response, so each prompt gets a response
        of one token. Which token does not matter: attention is causal.
        """
        limits = sorted(self.limit_prompts)
        prompts = self.next_prompts + [self.limit_prompts[at] for at in limits]
        ids = [prompt.ids for prompt in prompts]
        values = torch.zeros(len(ids))
        one, rows, budget = [[0]] * len(ids), range(len(ids)), self.token_budget
        for batch in micro_batches(ids, one, rows, budget, self.device, self.ranks):
            values[batch.rows] = actor_critic.values(batch.ids, batch.response_mask).float().cpu()
        self.ranks.sum(values)  # each rank has computed its share of the prompts
        self.bootstrap = values[: self.n_env]  # (N,)
        self.limit_values = dict(zip(limits, values[self.n_env :].tolist(), strict=True))

    def mean_kl(self) -> float:
        """Return the mean KL to the reference per response token, by the k1 estimate."""
        return (self.logps - self.ref_logps)[self.response_mask].mean().item()

    def penalise_kl(self, kl) -> None:
        """Subtract beta times the KL estimate from each response token's reward (paper, 3.1)."""
        estimate = kl.estimate(self.logps, self.ref_logps)
        self.rewards -= kl.coef * torch.where(self.response_mask, estimate, 0.0)

    def compute_returns(self, estimator: Callable, use_proper_time_limits: bool) -> None:
        """Fill `advantages` and `returns`, (E, N, T), by what `make_estimator` returns.

        use_proper_time_limits: at a time limit bootstrap from V, instead of 0 as at a failure
        """
        # V of the state after each turn: the next turn's first value, or the bootstrap at the cut.
        self.next_values = torch.cat([self.values[1:, :, 0].cpu(), self.bootstrap.unsqueeze(0)])
        self.next_values[self.terminated | self.truncated] = 0.0
        self.cut = self.truncated & ~self.terminated  # (E, N): episodes that ended without outcome
        if not use_proper_time_limits:
            # A failed environment is a cut all the same: the policy had no part in it.
            self.cut &= torch.tensor([[bool(step.fault) for step in turn] for turn in self.steps])
        for (t, n), value in self.limit_values.items():
            if self.cut[t, n]:
                self.next_values[t, n] = value
        self.episode_ends = (self.terminated | self.truncated).to(self.device)  # (E, N)
        turns = dict(rewards=self.rewards, values=self.values, response_mask=self.response_mask)
        turns |= dict(next_values=self.next_values.to(self.device), episode_ends=self.episode_ends)
        self.advantages, self.returns = estimator(**turns)


def transposed(rows: list) -> list[list]:
    return [list(column) for column in zip(*rows, strict=True)]
