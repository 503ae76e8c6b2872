"""How many processors this process may use."""

import os


def processors() -> int:
    """Return the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    return len(affinity(0)) if affinity else os.cpu_count()


def ranks_here() -> int:
    """Return how many ranks of a run share this machine: all, if the launcher does not say."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", 1)))


def processors_of_a_rank() -> int:
    """Return this rank's share of them, at least one."""
    return max(1, processors() // ranks_here())
