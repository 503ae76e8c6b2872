"""A domain of tau2 as an agent's program: `agent:tau2:retail:gpt-4.1`.

The policy is the customer service agent. The model named behind the domain plays the customer, and
--upstream answers it. Without a model there is no customer, and the agent works on a ticket (tau2's
solo mode), as the tasks of `mock` and `telecom` have one. tau2's checks pay at the end.
"""

import functools
import os
import random

from loguru import logger

logger.disable("tau2")  # our one line tells its errors
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import fetches prices

from tau2.agent.llm_agent import LLMSoloAgent  # noqa: E402
from tau2.registry import registry  # noqa: E402
from tau2.run import load_task_splits, load_tasks, run_task  # noqa: E402

from envs.ecosystems import CannotMake, check_name  # noqa: E402


@functools.cache  # all agents of a process share it
def program(name: str):
    """Return the program. An episode's seed chooses a task: of the split "train" if it is even, of
    "test" if it is odd, as in evaluations. A domain without these splits has all for both."""
    domain, _, customer = name.partition(":")
    check_name(domain, registry.get_info().domains, "domain")
    splits = load_task_splits(domain) or {}
    tasks = [load_tasks(domain, split if split in splits else None) for split in ("train", "test")]
    if not customer:
        tasks = [[task for task in each if LLMSoloAgent.check_valid_task(task)] for each in tasks]
    if not all(tasks):
        advice = f"agent:tau2:{domain}:MODEL names a model that --upstream answers"
        raise CannotMake(f"its tasks need a customer: {advice}")

    def solve(seed, base_url, api_key, reward):
        to = dict(api_base=base_url, api_key=api_key)
        played = run_task(
            domain,
            random.Random(seed).choice(tasks[seed % 2]),
            agent="llm_agent" if customer else "llm_agent_solo",
            user="user_simulator" if customer else "dummy_user",
            llm_agent="openai/policy",
            llm_args_agent=to,
            llm_user=f"openai/{customer}",
            llm_args_user=to,
            seed=None,
        )
        checks = played.reward_info.reward_breakdown or {}
        metrics = {check.value.lower(): value for check, value in checks.items()}
        return dict(reward=played.reward_info.reward, metrics=metrics)

    return solve
