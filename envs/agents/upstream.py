"""Asks another endpoint for answers of other models (--upstream). They are never trained on."""

import base64
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from urllib.parse import unquote, urlsplit

from common.masked import masked
from envs.agents.errors import Refused

SECONDS = 600.0  # time limit for an answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args) -> None:
        """Follow no redirection: it would send the key to another address."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def ask_upstream(upstream: str, path: str, body: bytes) -> tuple[int, bytes, str]:
    """Post a request and return the status, the body and the content type of the answer.

    upstream: base URL; a user and a password in it, or else UPSTREAM_API_KEY, are sent as the key
    path: of the API, such as "/chat/completions"
    Refused: there is no answer
    """
    try:
        url, headers = _address(upstream)
        request = urllib.request.Request(url + path, body, headers)
        with _OPENER.open(request, timeout=SECONDS) as answer:
            return answer.status, answer.read(), _kind(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), _kind(error)
    except (OSError, ValueError, HTTPException) as error:
        reason = masked(f"--upstream {upstream}: {error!r}")
        raise Refused(reason, 502, "upstream") from error


def _kind(answer) -> str:
    return answer.headers["Content-Type"] or "application/json"


def _address(upstream: str) -> tuple[str, dict[str, str]]:
    """Return the URL without its user and password, and the headers of a request."""
    parts = urlsplit(upstream.rstrip("/"))
    user, at, host = parts.netloc.rpartition("@")
    headers = {"Content-Type": "application/json"}
    if at:
        headers["Authorization"] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    elif key := os.environ.get("UPSTREAM_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    return parts._replace(netloc=host).geturl(), headers
