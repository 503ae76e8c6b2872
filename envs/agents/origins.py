"""Finds out which agent's thread sent a request, and whether its API key belongs to another agent.

Some frameworks keep their client in a global setting. If several agents of a process set it, the
last one wins, and the requests of the others arrive at its session: turns would be credited to the
wrong episodes. An audit hook of Python notes the thread of each connection to the endpoint. The
first request of a connection comes from the thread that opened it; later ones may not, because
clients share connections. Threads that a program starts are not known, and are not judged.
"""

import sys
import threading
import weakref

KEPT = 4096  # connections whose first request is still to come
CAUSE = (
    "Usually each agent overwrites a global setting that holds the client "
    "(set_default_openai_client, dspy.configure, os.environ). Pass the client where it is used, or "
    "give each agent a process: --env-workers with the number of --n-env"
)
CROSSED = (
    "an agent asked with the API key of another agent of its process: turns would be credited to "
    f"wrong episodes. {CAUSE}"
)
WAITING = (
    f"more than one request waits with another agent's API key: perhaps one is its own. {CAUSE}"
)
_opened: list[tuple[weakref.ref, int]] = []  # the socket of a connection, and its thread
_lock = threading.Lock()


def watch(port: int) -> None:
    """Note the threads that connect to a port of this machine, from now on."""

    def hook(event: str, args: tuple) -> None:
        if event == "socket.connect" and isinstance(args[1], tuple) and args[1][1] == port:
            with _lock:
                _opened.append((weakref.ref(args[0]), threading.get_ident()))
                del _opened[:-KEPT]

    sys.addaudithook(hook)


def thread_of(port: int) -> int | None:
    """Return the thread that opened a connection, and forget it. None: it is not known

    port: of the client's end
    """
    found = None
    with _lock:
        for entry in list(_opened):
            connection = entry[0]()
            local = None if connection is None else _port(connection)
            if local is None:
                _opened.remove(entry)
            elif local == port:
                _opened.remove(entry)
                found = entry[1]
    return found


def _port(connection) -> int | None:
    """Return the local port of a socket, 0 before it is connected; None if it is closed."""
    try:
        return connection.getsockname()[1]
    except OSError:
        return None
