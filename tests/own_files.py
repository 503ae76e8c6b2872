"""A user's own files with mistakes in them.

Each case is a class or a function. The line that a message must name ends with a comment: # here,
and the case's name.
"""

import sys
from pathlib import Path

RESET, STEP = "def reset(self, *, seed=None, options=None):", "def step(self, action):"


def method(head: str, *body: str) -> str:
    """A method that is to blame, or a line of it that ends with # here."""
    mark = "" if any("# here" in line for line in body) else "  # here"
    return "\n".join([f"    {head}{mark}", *(f"        {line}" for line in body)])


def reset(answer: str) -> str:
    return method(RESET, f"return {answer}")


def step(answer: str) -> str:
    return method(STEP, f"return {answer}")


def attribute(line: str) -> str:
    """A line of a class which is to blame as a whole."""
    return f"    {line}"


def marked(cases: dict[str, tuple[str, str]], head: str) -> str:
    """The classes or functions of all cases, where `head` is their first line."""
    text = ""
    for name, (body, _) in cases.items():
        mark = "" if "# here" in body else f"  # here {name}"
        body = body.replace("# here", f"# here {name}")
        text += f"\n\n{head.format(name)}{mark}\n{body}\n"
    return text


def place(file: str, name: str) -> str:
    """What a message says first: the marked line of a case in a file of the working directory."""
    (line,) = [n for n, text in enumerate(open(file), 1) if text.endswith(f"# here {name}\n")]
    return f"{file}:{line}: "


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def work_in(folder: Path, monkeypatch) -> None:
    """The user stands in the folder, and his modules are found there."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
