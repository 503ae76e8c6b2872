"""Which records of a dialogue log are turns: each field that a report reads has its type.

A run may come from another version, from an edited file or from somebody who means harm.
"""

from common.run_file import is_finite

SCORES = ("advantages", "values", "kl")  # per token; the viewer colours tokens by one of them
TYPES = {
    "update": int, "env": int, "episode": int, "seed": int, "step": int, "action_at": int,
    "prompt": str, "response": str, "action": str, "fault": str, "tokens": list,
    "valid": bool, "terminated": bool, "truncated": bool, "success": bool,
    "response_truncated": bool, "prompt_overflow": bool, "reward": int | float,
    "logps": list, "values": list, "advantages": list, "kl": list,
}  # fmt: skip


def is_turn(record: dict) -> bool:
    """Return whether a record has all fields of a turn, each with a value of its type."""
    if not all(name in record and isinstance(record[name], TYPES[name]) for name in TYPES):
        return False
    count = len(record["tokens"])
    return (
        is_finite(record["reward"])  # it may have been NaN
        and all(isinstance(piece, str) for piece in record["tokens"])
        and all(_are_scores(record[name], count) for name in ("logps", *SCORES))
        and isinstance(record.get("observation", ""), str)
        and _are_messages([record.get("reply") or {"role": ""}])
        and _are_messages(record.get("followed") or [])
    )


def _are_scores(values: list, count: int) -> bool:
    return len(values) == count and all(x is None or is_finite(x) for x in values)


def _are_messages(messages) -> bool:
    return isinstance(messages, list) and all(map(_is_message, messages))


def _is_message(message) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    calls = message.get("tool_calls") or []
    named = isinstance(message.get("name") or "", str)
    return named and isinstance(calls, list) and all(map(_is_call, calls))


def _is_call(call) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)
