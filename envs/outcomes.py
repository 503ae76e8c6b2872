"""Tells whether the policy or something else made an agent's program, or a library's game, fail.

An exception after a response of the policy is an outcome: the episode ends as a failure, so that
the policy learns not to break what it acts in. What no response causes stays a fault: a connection,
a time-out, a lack of memory, disk or packages, and what a program declares.
"""

import errno
import re
import socket
from collections.abc import Iterator

from envs.errors import BrokenContract, EnvError, Fault

FAULTS = (
    BrokenContract,
    ConnectionError,
    EnvError,
    Fault,
    ImportError,
    MemoryError,
    TimeoutError,
)
# Exceptions of SDKs and clients for a lost connection, which do not derive from Python's own
CONNECTION_ERRORS = {
    "APIConnectionError",  # openai, anthropic
    "ChunkedEncodingError",  # requests
    "ClientConnectionError",  # aiohttp
    "ConnectionClosed",  # websockets
    "ConnectionError",  # requests
    "IncompleteRead",  # http.client
    "ProtocolError",  # urllib3
    "TransportError",  # httpx
}
NO_NAME_SERVER = (socket.EAI_AGAIN, socket.EAI_FAIL)  # and not a name that the policy made up
# Of asyncio's RuntimeErrors about clients and locks
LOOP = re.compile("(?i)event loop|different loop")
NUMBERS = {  # of an OSError for which the machine is the reason, and no file that the policy named
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOMEM,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
}


def caused_by_policy(error: BaseException, faults: tuple[type[BaseException], ...] = ()) -> bool:
    """Return whether an exception that came after a response is an outcome of the episode.

    faults: classes of exceptions that are faults, too
    """
    return not any(_is_fault(each, faults) for each in causes(error))


def _is_fault(error: BaseException, faults: tuple) -> bool:
    names = {parent.__name__ for parent in type(error).__mro__}
    number = error.errno if isinstance(error, OSError) else None
    numbers = NO_NAME_SERVER if isinstance(error, socket.gaierror) else NUMBERS
    if isinstance(error, RuntimeError) and LOOP.search(str(error)):
        return True
    return isinstance(error, (*FAULTS, *faults)) or number in numbers or names & CONNECTION_ERRORS


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, what it was raised from, and the members of groups."""
    waiting, seen = [error], set()
    while waiting:
        error = waiting.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
        context = None if error.__suppress_context__ else error.__context__
        waiting += [cause for cause in (error.__cause__, context) if cause is not None]
