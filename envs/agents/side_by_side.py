"""Plays two sessions of a program side by side, before agents that share a process begin.

A program that keeps its client in a global setting sends requests of one session with the key of
another. A session that gets a request while another one gets none may have such a stranger, or its
program asks twice at once while the other one is slow. Refusing the request tells: if the other
program ends then, the request was its own.
"""

import queue
import threading
from contextlib import suppress

from common.awake import awake_seconds
from envs.agents.errors import Refused
from envs.agents.origins import CROSSED
from envs.agents.session import Call, Session
from envs.errors import BrokenContract
from envs.outcomes import causes

SECONDS = 60.0  # at most, for a program's next request; a slower one is not judged
QUIET_SECONDS = 1.0  # after which a session without a request looks at the other one
REFUSED_SECONDS = 5.0  # that a program has to end after a refusal
TURNS = 2  # that each session plays
RESPONSE = "OK"
_checked: set[int] = set()  # ids of the programs that this process has played
_lock = threading.Lock()


def check(agent, seed: int) -> None:
    """Play two sessions, once in a process. Other agents of the process wait meanwhile.

    agent: an `envs.agents.agent.AgentEnv`
    BrokenContract: one session got a request of the other
    """
    with _lock:
        if id(agent.function) in _checked:
            return
        pair = [agent.twin(), agent.twin()]
        try:
            _play(pair, seed)
        finally:
            for each in pair:
                each.close()
        _checked.add(id(agent.function))


def _play(pair: list, seed: int) -> None:
    """Let the sessions ask and be answered in turn, until one ends or is too slow."""
    orders = [pair, pair[::-1]]
    for turn in range(1 + TURNS):
        for k, (own, other) in enumerate(orders):
            if turn == 0:
                own.start(seed + 2 * k)
            else:
                own.answer(RESPONSE)
            own.call = _next_call(own, other)
            if own.call is None:
                return


def _next_call(own, other) -> Call | None:
    """Return a session's next request. None: its program has ended, or is slow.

    BrokenContract: the request went to the other session
    """
    end, suspected = awake_seconds() + min(SECONDS, own.timeout), False
    while awake_seconds() < end:
        try:
            event = own.session.events.get(timeout=QUIET_SECONDS)
        except queue.Empty:
            if other.session and _refuse_next(other.session):
                suspected = True
                own.thread.join(REFUSED_SECONDS)
            continue
        if isinstance(event, Call):
            return event
        [result] = event
        if isinstance(result, BrokenContract):  # the endpoint has seen whose thread asked
            raise result
        if suspected and _knows_the_refusal(result, answered=own.session.turns > 0):
            raise BrokenContract(f"{own.name}: {CROSSED}")
        return None
    return None


def _refuse_next(session: Session) -> bool:
    """Refuse the request that waits behind the answered one; return whether there was one."""
    with suppress(queue.Empty):
        event = session.events.get_nowait()
        if isinstance(event, Call):
            event.give(Refused(CROSSED, 403, "forbidden"))
            return True
        session.events.put(event)
    return False


def _knows_the_refusal(result, answered: bool) -> bool:
    """Return whether a program ended because its request was refused.

    result: what it returned, or its exception
    answered: whether it had a response, so that it may have returned by itself
    """
    if isinstance(result, BaseException):
        return any(CROSSED in str(cause) for cause in causes(result))
    return not answered
