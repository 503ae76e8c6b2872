"""The figures of a scored batch: rollout/*, engine/* and kl/* of metrics.jsonl.

Pure functions of a `RolloutStorage` whose log-probs are computed.
"""

import torch
from torch import Tensor


def batch_figures(rollouts) -> dict[str, float | None]:
    """All figures as "group/name"; those of episodes are means over the last 100 that ended."""
    responses = [response for turn in rollouts.responses for response in turn]
    steps = [step for turn in rollouts.steps for step in turn]
    ended = {f"rollout/{name}": mean for name, mean in rollouts.episodes.means().items()}
    return ended | {
        "rollout/valid_action": _share([step.valid for step in steps]),
        "rollout/reward": sum(step.reward for step in steps) / len(steps),
        "rollout/response_tokens": rollouts.response_mask.sum().item() / len(steps),
        "rollout/truncated_responses": _share([response.truncated for response in responses]),
        "rollout/prompt_overflow": _share([response.prompt.overflow for response in responses]),
        "rollout/prompt_tokens": sum(len(r.prompt.ids) for r in responses) / len(steps),
        **_engine_gap(rollouts),
        **_kl_figures(rollouts, responses, steps),
    }


def _engine_gap(rollouts) -> dict[str, float | None]:
    """How far the engine's log-probs are from the trainer's, per token; None with --tis-cap, where
    they stand in for them. The largest gap is then in ppo/ratio_first_minibatch."""
    gap = (rollouts.engine_logps() - rollouts.logps)[rollouts.response_mask]  # (R,)
    figures = {
        "engine/logp_gap_mean": gap.abs().mean().item(),
        "engine/logp_gap_p99": gap.abs().quantile(0.99).item() if len(gap) < 2**24 else None,
        "engine/ratio_outside": ((gap.exp() - 1).abs() > 0.1).float().mean().item(),
    }
    return dict.fromkeys(figures) if rollouts.trusted else figures


def _kl_figures(rollouts, responses, steps) -> dict[str, float | None]:
    """KL to the reference, also split at the ACTION marker: the paper's "action hacking" signal."""
    mask = rollouts.response_mask  # (E, N, T)
    kl = rollouts.logps - rollouts.ref_logps
    acting = mask & _action_mask(rollouts, responses, steps)
    return {
        "kl/ref": rollouts.mean_kl(),
        "kl/ref_k3": (torch.exp(-kl) - 1 + kl)[mask].mean().item(),  # never negative
        "kl/ref_think": _mean(kl[mask & ~acting]),
        "kl/ref_action": _mean(kl[acting]),
    }


def _action_mask(rollouts, responses, steps) -> Tensor:
    """(E, N, T), True from the token in which the ACTION part of a response begins."""
    turns = zip(responses, steps, strict=True)
    starts = [response.action_token(step.action_at) for response, step in turns]
    E, N, T = rollouts.logps.shape
    device = rollouts.logps.device
    return torch.arange(T, device=device) >= torch.tensor(starts, device=device).view(E, N, 1)


def _share(flags: list[bool]) -> float:
    return sum(flags) / len(flags)


def _mean(tensor: Tensor) -> float | None:
    return tensor.mean().item() if tensor.numel() else None
