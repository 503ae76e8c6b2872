"""RolloutStorage: the turns of N environments, from prompt ids to advantages.

A batch is exactly E turns of each environment or, with a group size, whole episodes. Collection
fills ragged lists (`act`, `insert`, `limit`, `finish`), and `join` brings the lists of all ranks
together. `score` pads once, into (E, N, T) tensors over response tokens, where T is the longest
response. Where turns are flat, turn t of environment n is row t * N + n. Of whole episodes E is the
most turns that an environment has; those that others lack are None in lists, masked in tensors, and
no `rows`. The metrics of a batch are in `run.figures`.
"""

from array import array
from collections.abc import Callable, Sequence
from copy import copy
from itertools import chain, zip_longest
from math import ceil

import torch
from torch import Tensor

from common.ranks import ALONE, Ranks
from storage.compact import compact, whole
from storage.episodes import Episodes
from storage.groups import anchors_of, groups_of
from storage.merged import WORTH, in_chains, number_chains, share_saved
from storage.minibatch import micro_batches


def make_storage(args, ranks: Ranks) -> "RolloutStorage":
    options = dict(proper_limits=args.use_proper_time_limits, trusted=args.tis_cap is not None)
    options |= dict(group_size=args.group_size, critic=not args.no_critic, merge=args.merge_turns)
    e_len = ceil(args.turns_per_update / args.n_env) if args.group_size else args.e_len
    return RolloutStorage(e_len, args.n_env, args.token_budget, ranks, **options)


class RolloutStorage:
    """Turns of all N environments. This rank collects its share of them, numbered from 0.

    e_len: E, turns of each environment; with a group size, the least mean over a group
    n_env: N, environments of all ranks together
    token_budget: padded tokens of one forward pass; episodes: `Episodes` that outlive the batch
    proper_limits: at a time limit bootstrap from V, instead of 0 as at a failure
    trusted: take the engine's log-probs as log pi_old, without the actor's pass (--tis-cap)
    group_size: environments that begin their episodes together; 0: batches of exactly E turns
    critic: whether there is one; without it there are no values and no returns
    merge: on, off or auto: whether turns that extend one another share a row (`storage.merged`)
    """

    def __init__(self, e_len: int, n_env: int, token_budget: int, ranks: Ranks = ALONE,
                 proper_limits: bool = False, trusted: bool = False, episodes=None,
                 group_size: int = 0, critic: bool = True, merge: str = "auto"):  # fmt: skip
        self.least, self.n_env, self.token_budget = e_len, n_env, token_budget
        self.ranks, self.device = ranks, ranks.device
        self.proper_limits, self.trusted = proper_limits, trusted
        self.group_size, self.critic, self.merge = group_size, critic, merge
        self.episodes = episodes or Episodes(n_env)
        self._begin()

    def after_update(self) -> None:
        """Forget the batch. Environments and memories go on from where they are."""
        self.episodes.turns += len(self.rows)
        self._begin()

    def longer(self, times: int) -> "RolloutStorage":
        """Return an empty storage for `times` batches at once, with the same record of episodes."""
        storage = copy(self)
        storage.least = times * self.least
        storage._begin()
        return storage

    def _begin(self) -> None:
        N = len(self.ranks.share(self.n_env))
        self.e_len = self.least
        self.acting = [None] * N  # the response that each environment acts on, with its prompt
        self.taken = [[] for _ in range(N)]  # (response, step) of its completed turns
        self.ended = [0] * N  # episodes that it has ended
        self.next_prompts = [None] * N  # s_{E+1} of each environment: its value is the bootstrap
        self.limit_prompts = {}  # (t, n) -> the prompt at the final observation of a time limit
        self.rows = ()  # the turns t * N + n of all environments, when they are complete
        self.values = self.prompt_ids = self.response_ids = self.chain_of = self.first_epoch = None

    # ---- collection -------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return all(prompt is not None for prompt in self.next_prompts)

    def progress(self) -> float:
        """Return the share of this rank's turns that are complete; whole episodes may pass 1."""
        return sum(self.turns) / (len(self.taken) * self.least)

    @property
    def turns(self) -> list[int]:
        """How many turns each environment has completed."""
        return [len(taken) for taken in self.taken]

    def wants(self, n: int) -> bool:
        """Whether environment n takes another turn in this batch: it has less than E or, of whole
        episodes, one is under way or its group has less than E turns for each environment."""
        mates = self._mates(n)
        under_way = self.group_size and self.taken[n] and not self.taken[n][-1][1].done
        taken = sum(len(self.taken[m]) for m in mates)
        return bool(under_way) or taken < len(mates) * self.least

    def due(self, n: int) -> Sequence[int]:
        """The environments whose next prompts are due when n has answered: its own or, if that
        ended an episode, those of the whole group, once all of them have ended theirs."""
        # If the quick ones went on alone, they would play episodes that the others never begin.
        if not (self.group_size and self.taken[n][-1][1].done):
            return [n]
        mates = self._mates(n)
        return mates if len({self.ended[m] for m in mates}) == 1 else []

    def member(self, n: int) -> int:
        """The number of environment n in its group, by which its sampling noise differs."""
        return n - self._mates(n)[0]

    def _mates(self, n: int) -> range:
        size = max(1, self.group_size)
        return range(n // size * size, n // size * size + size)

    def act(self, n: int, response) -> None:
        """Keep the response that environment n is about to act on."""
        self.acting[n] = response = compact(response)
        self.episodes.before[self.ranks.share(self.n_env)[n]] = whole(response)

    def before(self, n: int) -> list[int]:
        """The ids of the last prompt of environment n and of its response; [] at first."""
        return self.episodes.before[self.ranks.share(self.n_env)[n]]

    def insert(self, n: int, step) -> None:
        """Keep what environment n answered, which completes its turn."""
        done = self.next_prompts[n] is not None
        assert not done, f"environment {n} already has its {len(self.taken[n])} turns"
        self.taken[n].append((self.acting[n], step))
        self.ended[n] += step.done

    def cuts(self, step) -> bool:
        """Whether `step` ended its episode without an outcome, so that V has to stand for one."""
        # A failed environment is a cut in any case: the policy had no part in it.
        allowed = self.critic and (self.proper_limits or bool(step.fault))
        return allowed and step.truncated and not step.terminated

    def limit(self, n: int, prompt) -> None:
        """Keep what the agent would have seen after the turn just inserted, which was cut."""
        self.limit_prompts[len(self.taken[n]) - 1, n] = prompt

    def finish(self, n: int, prompt) -> None:
        """Keep the prompt that follows the last turn of environment n."""
        self.next_prompts[n] = prompt

    def join(self) -> None:
        """Bring the turns of all ranks together, so that each rank holds the whole batch."""
        complete = not any(map(self.wants, range(len(self.taken))))
        assert complete, f"turns per environment {self.turns}, not {self.least}"
        first = self.ranks.share(self.n_env)[0]  # global index of this rank's environment 0
        limits = [((t, first + n), prompt) for (t, n), prompt in self.limit_prompts.items()]
        self.limit_prompts = dict(self.ranks.gather(limits))
        taken = self.ranks.gather(self.taken)
        turns = list(zip_longest(*taken, fillvalue=(None, None)))
        self.responses = [[response for response, _ in turn] for turn in turns]
        self.steps = [[step for _, step in turn] for turn in turns]
        self.next_prompts = self.ranks.gather(self.next_prompts)
        self.e_len = len(turns)
        there = enumerate(chain.from_iterable(self.steps))
        self.rows = [row for row, step in there if step is not None]
        # Episodes are recorded in the order of turns: no figure depends on who answered first.
        for row in self.rows:
            t, n = divmod(row, self.n_env)
            self.episodes.insert(n, self.steps[t][n])
        for n, turns in enumerate(taken):  # other ranks' turns, too: a checkpoint holds all
            self.episodes.before[n] = whole(turns[-1][0])
        self.find_chains()

    def find_chains(self) -> None:
        """List the ids of all turns, and number their chains."""
        flat = list(chain.from_iterable(self.responses))
        none = array("i")
        self.prompt_ids = [r.prompt.ids if r else none for r in flat]
        self.response_ids = [r.ids if r else none for r in flat]
        self.chain_of = number_chains(self.prompt_ids, self.response_ids, self.n_env)
        least = {"on": 0.0, "auto": WORTH, "off": float("inf")}[self.merge]
        if self.merged([self.rows]) < least:
            self.chain_of = list(range(len(flat)))  # each turn is a row

    def chains(self, rows: Sequence[int] | None = None) -> list[list[int]]:
        """Return `rows` (default: all), where turns that share a row of the model are together."""
        return in_chains(self.rows if rows is None else rows, self.chain_of)

    def merged(self, minibatches: list[list[int]]) -> float:
        """Return the share of the prompt tokens that are not computed again in these lists."""
        return share_saved(self.prompt_ids, self.response_ids, minibatches, self.chain_of)

    # ---- scores -----------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, actor_critic, reference, first_epoch: list[list[int]]) -> None:
        """Compute log pi_old, log pi_0 and V of every response token with the trained model.

        The engine's log-probs come from other kernels: with them no ratio would begin at 1. Nor
        would they all, in bf16, if the update cut other micro-batches: these would round otherwise.
        first_epoch: the minibatches that the update begins with
        """
        self._pad()
        self.first_epoch = first_epoch
        for batch, mask in chain.from_iterable(map(self.batches, first_epoch)):
            if not self.trusted:
                scores = actor_critic(batch)
                values = scores.values
                self.fill(self.logps, batch.rows, mask, scores.logps)
            elif self.critic:
                values = actor_critic.values(batch)
            if self.critic:
                self.fill(self.values, batch.rows, mask, values)
            ref_logps = reference(batch)
            self.fill(self.ref_logps, batch.rows, mask, ref_logps)
        for computed in (self.logps, self.ref_logps, *([self.values] if self.critic else [])):
            self.ranks.sum(computed)  # one rank has computed each row, the others hold zeros
        if self.trusted:
            self.logps = self.engine_logps()
        if self.critic:
            self._score_ends(actor_critic)

    @torch.no_grad()
    def score_values(self, actor_critic) -> None:
        """Compute V alone, for the critic's warm-up: while the actor stands still, the KL is 0."""
        if self.values is None:  # the first round on this batch
            self._pad()
        self.values.zero_()  # rows that other ranks compute must be zeros when summed
        for batch, mask in self.batches(self.rows):
            values = actor_critic.values(batch)
            self.fill(self.values, batch.rows, mask, values)
        self.ranks.sum(self.values)
        self._score_ends(actor_critic)

    def batches(self, rows: Sequence[int]):
        """Yield this rank's micro-batches of `rows`, each with the mask (turns, T) of its turns."""
        where = dict(device=self.device, ranks=self.ranks, chain_of=self.chain_of)
        prompts, responses, budget = self.prompt_ids, self.response_ids, self.token_budget
        for batch in micro_batches(prompts, responses, rows, budget, **where):
            mask = self.response_mask.flatten(0, 1)[batch.rows]
            each = self.temperatures[batch.rows]
            batch.temperature = each.repeat_interleave(mask.sum(-1).cpu()).to(self.device)
            yield batch, mask

    @staticmethod
    def fill(tensor: Tensor, rows: Tensor, mask: Tensor, flat: Tensor) -> None:
        """Write the flat results (R,) of `rows` into (E, N, T), where mask is True, (turns, T)."""
        block = torch.zeros(mask.shape, dtype=tensor.dtype, device=tensor.device)
        block[mask] = flat.to(tensor.dtype)
        tensor.flatten(0, 1)[rows] = block  # flatten returns a view: this writes into `tensor`

    @staticmethod
    def take(tensor: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Read what `fill` writes: flat (R,), the entries of `rows` where the mask is True."""
        return tensor.flatten(0, 1)[rows][mask]

    def engine_logps(self) -> Tensor:
        """Return the log-probs that the engine reported when it sampled the tokens, (E, N, T)."""
        reported = torch.zeros_like(self.logps)
        flat = [logp for response in self.said() for logp in response.logps]
        # The mask selects turn by turn, environment by environment: in the order of `flat`.
        reported[self.response_mask] = torch.tensor(flat, device=self.device)
        return reported

    def said(self) -> list:
        """The responses of all turns, in the order of `rows`."""
        return [response for turn in self.responses for response in turn if response is not None]

    def played(self) -> list:
        """The steps of all turns, in the order of `rows`."""
        return [step for turn in self.steps for step in turn if step is not None]

    def _pad(self) -> None:
        """Make the (E, N, T) tensors and put each turn's reward on its last response token."""
        flat = chain.from_iterable(self.responses)
        each = [response.temperature if response else 1.0 for response in flat]
        self.temperatures = torch.tensor(each)  # (E * N,)
        lengths = torch.tensor([len(ids) for ids in self.response_ids], device=self.device)
        lengths = lengths.view(self.e_len, -1, 1)  # (E, N, 1)
        T = int(lengths.max())
        self.response_mask = torch.arange(T, device=self.device) < lengths  # (E, N, T)
        zeros = torch.zeros(self.response_mask.shape, device=self.device)
        self.logps, self.ref_logps, self.rewards = (zeros.clone() for _ in range(3))
        self.values = zeros if self.critic else None
        told = lambda what, of: torch.tensor(
            [[what(s) if s else of for s in t] for t in self.steps]
        )
        rewards = told(lambda step: step.reward, 0.0).unsqueeze(-1)  # (E, N, 1)
        self.rewards.scatter_(-1, (lengths - 1).clamp(min=0), rewards.to(self.device))
        self.episode_ends = told(lambda step: step.done, True)  # (E, N)
        self.cut = told(self.cuts, False)

    def _score_ends(self, actor_critic) -> None:
        """Compute V(s_{E+1}), (N,), and V of the final observations of time limits.

        A prompt's value stands before the first token of a response, so each prompt gets a response
        of one token. Which token does not matter: attention is causal.
        """
        limits = sorted(self.limit_prompts)
        prompts = self.next_prompts + [self.limit_prompts[at] for at in limits]
        ids = [list(prompt.ids) for prompt in prompts]
        values = torch.zeros(len(ids))
        one, rows, budget = [[0]] * len(ids), range(len(ids)), self.token_budget
        for batch in micro_batches(ids, one, rows, budget, self.device, self.ranks):
            values[batch.rows] = actor_critic.values(batch).float().cpu()
        self.ranks.sum(values)  # each rank has computed its share of the prompts
        self.bootstrap = values[: self.n_env]  # (N,)
        self.limit_values = dict(zip(limits, values[self.n_env :].tolist(), strict=True))

    def mean_kl(self) -> float:
        """Return the mean KL to the reference per response token, by the k1 estimate."""
        return (self.logps - self.ref_logps)[self.response_mask].mean().item()

    def penalise_kl(self, kl) -> None:
        """Subtract beta times the KL estimate from each response token's reward (paper, 3.1)."""
        if kl.coef > 0 and not kl.in_loss:  # with 0 there may be no reference: log pi_0 is unknown
            estimate = kl.estimate(self.logps, self.ref_logps)
            self.rewards -= kl.coef * torch.where(self.response_mask, estimate, 0.0)

    def compute_returns(self, estimator: Callable) -> None:
        """Fill `advantages` and `returns`, (E, N, T), by what `make_estimator` returns."""
        if self.critic:
            self._find_next_values()
        following = self.next_values.to(self.device) if self.critic else None
        turns = dict(rewards=self.rewards, values=self.values, response_mask=self.response_mask)
        turns |= dict(next_values=following, episode_ends=self.episode_ends.to(self.device))
        groups, anchors = groups_of(self.steps), anchors_of(self.steps)
        turns |= dict(groups=groups.to(self.device), anchors=anchors.to(self.device))
        self.advantages, self.returns = estimator(**turns)

    def _find_next_values(self) -> None:
        # V of the state after each turn: the next turn's first value, or the bootstrap at the cut.
        self.next_values = torch.cat([self.values[1:, :, 0].cpu(), self.bootstrap.unsqueeze(0)])
        self.next_values[self.episode_ends] = 0.0
        for (t, n), value in self.limit_values.items():
            self.next_values[t, n] = value
