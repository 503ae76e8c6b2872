"""The value of --engine: a name, a name with the number of ranks that share one vLLM, or
module:Class.

Only the standard library is imported here, so that a mistake is answered at once.
"""

from common.plugins import UserError

NAMES = ("auto", "vllm", "vllm-lora", "transformers")
SHARED = ("vllm", "vllm-lora")


def parted(engine: str) -> tuple[str, int]:
    """Return the engine's name, and how many ranks share one: "vllm:8" is ("vllm", 8)."""
    name, _, ranks = engine.rpartition(":")
    return (name, int(ranks)) if ranks.isdecimal() else (engine, 1)


def is_own(value: str) -> bool:
    """Whether a setting names a user's own module:name."""
    return ":" in parted(value)[0]


def check_engine(engine: str) -> None:
    """UserError: there is no such engine, or ranks cannot share it"""
    name, ranks = parted(engine)
    if name not in NAMES and not is_own(engine):
        choices = f"choices: {', '.join(NAMES)}, vllm:2 for one that 2 ranks share, or module:name"
        raise UserError(f"unknown engine {engine!r}; {choices} of your own")
    if ranks < 1 or (ranks > 1 and name not in SHARED):
        shared = " and ".join(SHARED)
        raise UserError(f"--engine {engine}: ranks can share {shared}, as in --engine vllm:2")


def check_sharing(engine: str, size: int) -> None:
    """UserError: `size` ranks do not divide into those that share an engine"""
    name, ranks = parted(engine)
    if size % ranks:
        line = f"--engine {engine}: {ranks} ranks share an engine, and this run has {size}"
        raise UserError(f"{line}; --engine {name} gives each rank its own")
