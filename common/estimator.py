"""What the command line must know of an estimator: whether it has a critic, and whether its
advantages are whitened.

Ours are known by their names. A user's own function says it by its attributes:

    estimator.critic = False  # it returns advantages alone; otherwise there is a critic
    estimator.whiten = False  # otherwise its advantages are whitened if it has a critic
"""

import os
import sys

from common.plugins import find

GROUPED = ("rloo", "grpo", "gigpo")  # they compare the episodes of a group, and have no critic
NAMES = dict.fromkeys(("dual-gae", "token-gae", "turn-gae", *GROUPED))  # for an error's choices


def has_critic(name: str) -> bool:
    """Return whether the estimator of --advantages has a critic. UserError: it is a user's and
    cannot be imported"""
    return name not in GROUPED and attribute(name, "critic", True)


def is_whitened(name: str) -> bool:
    """Return whether its advantages are scaled to mean 0 and variance 1. Errors: `has_critic`'s"""
    return attribute(name, "whiten", has_critic(name))


def attribute(name: str, trait: str, default: bool) -> bool:
    """Return an attribute of a user's function; the default for ours, which are not imported."""
    if ":" not in name:
        return default
    if os.getcwd() not in sys.path:  # modules beside the user
        sys.path.append(os.getcwd())
    return bool(getattr(find("estimator", name, NAMES), trait, default))
