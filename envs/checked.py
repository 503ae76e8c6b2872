"""Applies the checks of `envs.contract` to environments.

A user's environment is wrapped in `Checked`, which checks its return values before gymnasium's
wrappers unpack them. `envs.pool.host` applies the same checks to every environment.
"""

import functools
from collections.abc import Callable
from dataclasses import replace

import gymnasium

from envs.contract import (
    breach,
    check_actions,
    check_count,
    check_info,
    check_keys,
    check_observation,
    check_reset,
    check_reward,
    check_step,
    check_texts,
    is_helper,
)
from envs.credit import credited
from envs.text_env import Observation, Step, TextEnv, observation_of, step_of

# The trainer's own figures of episodes and turns, as `rollout/NAME` or `eval/NAME`
TAKEN = frozenset(
    """success return episode_len episodes first_under_way reward valid_action response_tokens
    truncated_responses cut_thoughts prompt_tokens prompt_overflow prompt_shortened reencoded
    continued_turns continued_prompt_tokens continued_response_tokens env_faults success_low
    success_high return_stderr temperature thought_information""".split()
)


class Checked(gymnasium.Wrapper):
    """Checks what a user's environment returns. This is the innermost wrapper."""

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        answer = self._call("reset", seed=seed, options=options)
        check_reset(self.env, answer)
        return answer

    def step(self, action: str):
        answer = self._call("step", action)
        check_step(self.env, answer)
        return answer

    def _call(self, name: str, *args, **options):
        try:
            return getattr(self.env, name)(*args, **options)
        except TypeError as error:
            if error.__traceback__.tb_next:  # raised inside the method: the call itself was fine
                raise
            raise breach(self.env, name, f"cannot be called: {error}") from error


def with_checks(env: gymnasium.Env) -> gymnasium.Env:
    """Put `Checked` around a user's environment, inside the wrappers that gymnasium added."""
    if not is_helper(env):
        return Checked(env)
    env.env = with_checks(env.env)
    return env


def guarded(env: gymnasium.Env) -> gymnasium.Env:
    """Check an environment's actions, and let a `TextEnv` check the results of its own methods.

    `checked_begin` and `checked_act` check the rest. BrokenContract: its actions are wrong
    """
    inner = env.unwrapped
    if isinstance(inner, TextEnv):
        check_actions(inner, inner.actions)
        inner._start = functools.partial(_checked_start, inner, inner._start)
        inner._act = functools.partial(_checked_act, inner, inner._act)
    return env


def _checked_start(env: gymnasium.Env, start: Callable) -> str:
    text = start()
    check_observation(env, "_start", text)
    return text


def _checked_act(env: gymnasium.Env, act: Callable, action: str) -> tuple:
    answer = act(action)
    check_count(env, "_act", answer, "(observation text, reward, terminated, success)")
    check_reward(env, "_act", answer[1])
    return answer


def checked_begin(env: gymnasium.Env, seed: int) -> Observation:
    """Reset an environment and check the result. BrokenContract: it is wrong"""
    answer = env.reset(seed=seed)
    check_reset(env, answer)
    check_info(env, "reset", answer[1])
    return observation_of(*answer)


def checked_act(env: gymnasium.Env, response: str) -> Step:
    """Take a turn and check the result. BrokenContract: it is wrong"""
    answer = env.step(response)
    check_step(env, answer)
    info = answer[-1]
    check_texts(env, "step", info, ("kept_response", "action"))
    check_keys(env, "step", info, ("valid", "action_at", "success"))
    check_info(env, "step", info)
    step = step_of(response, *answer)
    if TAKEN & step.metrics.keys():  # else they would replace the trainer's figures, or be lost
        named = {f"own_{k}" if k in TAKEN else k: x for k, x in step.metrics.items()}
        step = replace(step, metrics=named)
    return credited(step, *info.get("earlier", ()))
