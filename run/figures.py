"""The figures of a `Batch`: rollout/*, engine/*, kl/* and some of ppo/* of metrics.jsonl."""

from statistics import fmean

import torch
from torch import Tensor

from common.parts import ACTION, NOTES, SUMMARY, part_starts
from ppo.engines.text import action_token
from ppo.losses import explained_variance
from storage.batch import trained_scores
from storage.episodes import WINDOW, Episode, Episodes, means
from storage.merged import share_saved

PARTS = ("THINK", ACTION, NOTES, SUMMARY)  # of a response; all have the first two
FEWEST = 20  # ended episodes that a mean over episodes needs


def batch_figures(batch) -> dict[str, float | None]:
    """Return all figures as "group/name"; rollout/* over episodes are means over `recent` ones.

    With fewer than FEWEST of them (rollout/episodes counts them) these means are None. Short ones
    end first, often by success, so such means would flatter; rollout/reward is always there.
    """
    responses, steps = zip(*batch.played.values(), strict=True)
    episodes, ended = recent(batch.episodes), batch.episodes.batches[-1]
    enough, of_batch = len(episodes) >= FEWEST, means(ended)
    return {f"rollout/{k}": mean if enough else None for k, mean in means(episodes).items()} | {
        **{f"batch/{name}": of_batch[name] for name in ("success", "return", "episode_len")},
        "batch/episodes": len(ended),
        "rollout/episodes": len(episodes),
        "rollout/first_under_way": fmean(e.episode == 0 for e in batch.episodes.running),
        "rollout/valid_action": fmean(step.valid for step in steps),
        "rollout/reward": fmean(step.reward for step in steps),
        "rollout/response_tokens": fmean(len(response.ids) for response in responses),
        "rollout/truncated_responses": fmean(response.truncated for response in responses),
        "rollout/cut_thoughts": fmean(map(_is_cut, responses)),
        "rollout/prompt_overflow": fmean(response.prompt.overflow for response in responses),
        "rollout/prompt_shortened": fmean(response.prompt.shortened for response in responses),
        "rollout/reencoded": fmean(response.prompt.reencoded for response in responses),
        "rollout/prompt_tokens": fmean(len(response.prompt.ids) for response in responses),
        **_engine_gap(batch),
        **_kl_figures(batch),
        **getattr(batch, "costs", {}),  # of continuations (storage.valued)
    }


def recent(record: Episodes) -> list[Episode]:
    """Return the last WINDOW episodes in their order of ending; all of the last batch if it has
    more. Of batches of whole episodes none is split: those that end last in it are the long ones.
    """
    if not any(episode.length for episode in record.running):  # all that began has ended
        return record.finished
    return record.finished[-max(WINDOW, len(record.batches[-1])) :]


def update_figures(batch, plan: list[list[list[int]]]) -> dict[str, float | None]:
    """Return the ppo/* figures that the batch alone decides, once its advantages are known.

    plan: what `Agent.plan` returns
    """
    return _critic_figures(batch) | {
        "ppo/advantage_std": batch.advantages[batch.response_mask].std().item(),
        "ppo/merged": share_saved(batch.samples, batch.layout, plan[0]),
    }


def _critic_figures(batch) -> dict[str, float | None]:
    """How the critic's values compare with the returns, at the first token of each turn."""
    if batch.values is None:  # there is no critic
        return dict.fromkeys(("ppo/explained_variance", "ppo/value_mean", "ppo/return_mean"))
    turns = batch.response_mask.any(-1)  # (E, N)
    values, returns = batch.values[..., 0][turns], batch.returns[..., 0][turns]
    return {
        "ppo/explained_variance": explained_variance(values, returns),
        "ppo/value_mean": values.mean().item(),
        "ppo/return_mean": returns.mean().item(),
    }


def _is_cut(response) -> bool:
    """Whether the response limit ended the reasoning, so that it has no answer and no action."""
    text = response.text
    return response.truncated and "<think>" in text and "</think>" not in text


def engine_logps(batch) -> Tensor:
    """Return the log-probs that the engine reported when it sampled the tokens, (E, N, T)."""
    reported = torch.zeros_like(batch.logps)
    flat = [logp for response, _ in batch.played.values() for logp in response.logps]
    # The mask selects turn by turn, environment by environment: in the order of `flat`.
    reported[batch.response_mask] = torch.tensor(flat, device=batch.device)
    return reported


def _engine_gap(batch) -> dict[str, float | None]:
    """Distance per token between the engine's log-probs and the trainer's. It is None with
    --tis-cap, as the trainer computes none; ppo/ratio_first_minibatch then shows the largest."""
    gap = (engine_logps(batch) - batch.logps)[batch.response_mask]  # (R,)
    figures = {
        "engine/logp_gap_mean": gap.abs().mean().item(),
        "engine/logp_gap_p99": gap.abs().quantile(0.99).item() if len(gap) < 2**24 else None,
        "engine/ratio_outside": ((gap.exp() - 1).abs() > 0.1).float().mean().item(),
    }
    trained = batch.scoring.old_scores is trained_scores
    return figures if trained else dict.fromkeys(figures)


def _kl_figures(batch) -> dict[str, float | None]:
    """KL to the reference. Its split into the parts of a response shows the paper's "action
    hacking"; notes and summaries are parts where there are any."""
    mask = batch.response_mask  # (E, N, T)
    kl = batch.logps - batch.ref_logps
    part = _parts(batch)
    names = [name for k, name in enumerate(PARTS) if k < 2 or bool((mask & (part == k)).any())]
    return {
        "kl/ref": batch.mean_kl(),
        "kl/ref_k3": (torch.exp(-kl) - 1 + kl)[mask].mean().item(),  # never negative
        **{f"kl/ref_{n.lower()}": _mean(kl[mask & (part == PARTS.index(n))]) for n in names},
    }


def _parts(batch) -> Tensor:
    """Return (E, N, T), the number in PARTS of the part of a response that a token belongs to."""
    E, N, T = batch.logps.shape
    parts = torch.zeros(E * N, T, dtype=torch.long)  # of a missing turn the mask knows no token
    for row, (response, step) in batch.played.items():
        for name, start in part_starts(response.text, step.action_at).items():
            first = action_token(response.pieces, response.text, start)
            parts[row, first:] = PARTS.index(name)
    return parts.view(E, N, T).to(batch.logps.device)


def _mean(tensor: Tensor) -> float | None:
    return tensor.mean().item() if tensor.numel() else None
