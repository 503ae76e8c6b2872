"""What the command line must know of an estimator: whether it has a critic, and whether its
advantages are whitened.

Ours are known by their names, `vine:K` with a number. A user's own function says it by its
attributes:

    estimator.critic = False  # it returns advantages alone; otherwise there is a critic
    estimator.whiten = False  # otherwise its advantages are whitened if it has a critic
"""

import os
import sys
from argparse import ArgumentTypeError

from common.plugins import find

GROUPED = ("rloo", "grpo", "gigpo")  # they compare the episodes of a group, and have no critic
VINE = "vine"  # it plays K continuations of each state, and has no critic either
K = 9  # where `vine` names no number; as published
NAMES = dict.fromkeys(("dual-gae", "token-gae", "turn-gae", *GROUPED, VINE))  # an error's choices


def estimator(text: str) -> str:
    """The type of --advantages."""
    number = text.removeprefix(f"{VINE}:")
    if key_of(text) == VINE and text != VINE and not (number.isdecimal() and int(number) > 0):
        raise ArgumentTypeError(f"{text!r} is not of the form {VINE}:K, with K of 1 or more")
    return text


def key_of(name: str) -> str:
    """Return what an estimator is called without its number: "vine" for "vine:4"."""
    return VINE if name.startswith(f"{VINE}:") else name


def continuations(name: str) -> int:
    """Return K, how many continuations of a state the estimator needs; 0: none."""
    if key_of(name) != VINE:
        return 0
    return K if name == VINE else int(name.removeprefix(f"{VINE}:"))


def has_critic(name: str) -> bool:
    """Return whether the estimator of --advantages has a critic. UserError: it is a user's and
    cannot be imported"""
    return key_of(name) not in (*GROUPED, VINE) and attribute(name, "critic", True)


def is_whitened(name: str) -> bool:
    """Return whether its advantages are scaled to mean 0 and variance 1. Errors: `has_critic`'s"""
    return key_of(name) == VINE or attribute(name, "whiten", has_critic(name))


def attribute(name: str, trait: str, default: bool) -> bool:
    """Return an attribute of a user's function; the default for ours, which are not imported."""
    if ":" not in name:
        return default
    if os.getcwd() not in sys.path:  # modules beside the user
        sys.path.append(os.getcwd())
    return bool(getattr(find("estimator", name, NAMES), trait, default))
