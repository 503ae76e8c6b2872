"""What the settings of a run would make another program import and contact.

A run directory may come from somebody else. Programs that look at a run or its model use none of
this unless the user types --trust, or the setting itself.
"""

from pathlib import Path
from shlex import quote

from common.engine_flag import parted
from common.estimator import key_of
from common.flags import spelled
from common.masked import masked
from common.plugins import UserError
from envs import LIBRARIES, OPEN, library

OF_MODULES = ("env_name", "engine", "memory", "advantages")  # "module:name" imports a user's own


def foreign(settings: dict) -> dict[str, str]:
    """Return the settings that import a user's own modules or contact an address: name -> value."""
    found = {name: str(settings.get(name) or "") for name in (*OF_MODULES, "upstream")}
    # vllm:2 and vine:4 are no modules
    known = {"engine": parted(found["engine"])[0], "advantages": key_of(found["advantages"])}
    named = found | known
    if library(named["env_name"]) in LIBRARIES.keys() - OPEN:  # packages installed on purpose
        named["env_name"] = ""
    return {name: value for name, value in found.items() if ":" in named[name]}


def as_flags(found: dict[str, str]) -> list[str]:
    """Return the words of a command line that types these settings."""
    return [word for name, value in found.items() for word in (spelled(name), value)]


def refuse_foreign(run: Path, settings: dict, remedy: str = "--trust allows it") -> None:
    """Raise a UserError if `settings`, which only the run names, have anything foreign."""
    if found := foreign(settings):
        flags = " ".join(quote(masked(word)) for word in as_flags(found))
        what = "contact" if found.keys() == {"upstream"} else "import"
        what = "import and contact" if found.keys() > {"upstream"} else what
        line = f"{run / 'args.json'} names what this would {what}: {flags}"
        raise UserError(f"{line}; {remedy} if the run is one that you trust")
