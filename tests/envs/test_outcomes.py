"""What a response may have caused, and what it cannot have: connections, above all."""

import http.client
import socket

import pytest

from envs.outcomes import caused_by_policy


def named(name: str, parent: type = Exception) -> BaseException:
    """An exception of a client's own class."""
    return type(name, (parent,), {})("lost")


def from_cause(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


LOST = [
    ConnectionResetError("reset"),
    TimeoutError("timed out"),
    http.client.IncompleteRead(b"half"),  # urllib: the server broke off
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    named("ChunkedEncodingError", OSError),  # requests
    named("ConnectionError", OSError),
    named("ConnectionClosed"),  # websockets, and the classes that derive from it
    named("ConnectionClosedError", type("ConnectionClosed", (Exception,), {})),
    from_cause(ValueError("no answer"), named("ProtocolError")),  # urllib3
]


@pytest.mark.parametrize("error", LOST, ids=repr)
def test_a_lost_connection_is_a_fault(error):
    assert not caused_by_policy(error)


POLICYS = [
    ValueError("no number"),
    FileNotFoundError(2, "no such file"),
    socket.gaierror(socket.EAI_NONAME, "Name or service not known"),  # a host that it made up
]


@pytest.mark.parametrize("error", POLICYS, ids=repr)
def test_what_a_response_may_have_caused_is_an_outcome(error):
    assert caused_by_policy(error)
    assert not caused_by_policy(error, faults=(type(error),))
