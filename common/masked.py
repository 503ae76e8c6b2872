"""Hides the user and the password inside a URL, in whatever is stored or shown."""

import re

USER_IN_URL = re.compile(r"(?<=://)[^/\s]*@")
MASK = "***@"


def masked(value):
    """Return a value with *** in the place of the user and the password of each URL in its texts.

    value: a text, a dict or list with texts, or anything else, which is returned as it is
    """
    if isinstance(value, str):
        return USER_IN_URL.sub(MASK, value)
    if isinstance(value, dict):
        return {key: masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value
