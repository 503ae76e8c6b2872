"""Turns off the caches with which libraries would answer for the policy, and more that they keep.

A cached response is not sampled, and its request never arrives. Of these libraries only DSPy has a
variable for it: DSPY_CACHEDIR keeps the answers of earlier processes away. All else needs a call.
"""

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile

# Module -> the call that turns its cache off
CALLS = {
    "dspy": "dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)",
    "langchain_core.language_models": "langchain_core.globals.set_llm_cache(None)",
    "litellm": "litellm.disable_cache()",
}
_off: set[str] = set()  # libraries whose caches this process has turned off


def prepare() -> None:
    """Give DSPy an empty directory for its cache, before it is imported."""
    if "dspy" in sys.modules or "DSPY_CACHEDIR" in os.environ:
        return
    if not importlib.util.find_spec("dspy"):
        return
    os.environ["DSPY_CACHEDIR"] = tempfile.mkdtemp(prefix="dspy-cache-")
    atexit.register(shutil.rmtree, os.environ["DSPY_CACHEDIR"], ignore_errors=True)


def turn_off() -> None:
    """Turn off the caches of the libraries that are imported, once in a process."""
    for library in CALLS.keys() - _off:
        if library not in sys.modules:
            continue
        _off.add(library)
        if library == "dspy":
            dspy = sys.modules["dspy"]
            dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
        elif library == "litellm":
            sys.modules["litellm"].disable_cache()
        else:
            from langchain_core.globals import set_llm_cache

            set_llm_cache(None)


def release_settings() -> None:
    """Let another thread call dspy.configure: each episode has one, after the one before."""
    if settings := sys.modules.get("dspy.dsp.utils.settings"):
        settings.config_owner_thread_id = settings.config_owner_async_task = None


def forget_clients() -> None:
    """Drop the clients that langchain-openai keeps.

    Programs that call asyncio.run have a new event loop, and the clients belong to the one before.
    """
    module = sys.modules.get("langchain_openai.chat_models._client_utils")
    if kept := getattr(module, "_cached_async_httpx_client", None):
        kept.cache_clear()


def advice() -> str:
    """Return the end of the line about a program that ended without asking."""
    calls = [call for library, call in CALLS.items() if library in sys.modules]
    turn = f"{' and '.join(calls)} turn{'s' * (len(calls) == 1)} it off" if calls else "turn it off"
    return f"has a cache answered for the policy? If so, {turn}"
