"""Passwords inside URLs: what is shown in their place, and that no record of a run has one."""

import json
import sys
from types import SimpleNamespace

import pytest

from arguments import command_line, get_args
from common.masked import masked
from run.describe import describe_run
from run.earlier import changes

URL, SHOWN = "https://me:s3cret@example.org/v1", "https://***@example.org/v1"
AGENT = ["--env-name", "agent:my_agent:solve", "--upstream", URL]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, SHOWN),
        ("http://token@host", "http://***@host"),  # a token has no name
        ("http://me:p@ss@host/a@b", "http://***@host/a@b"),  # the last @ before the path counts
        (
            f"cannot reach {URL}: no route, me@example.org",
            f"cannot reach {SHOWN}: no route, me@example.org",
        ),
        ("http://host:80/v1", "http://host:80/v1"),
        ("org/name", "org/name"),
        (3, 3),
        (None, None),
        ({"a": [URL, 1], "b": {"c": URL}}, {"a": [SHOWN, 1], "b": {"c": SHOWN}}),
    ],
)
def test_user_and_password_of_urls_are_masked(text, shown):
    assert masked(text) == shown


def test_no_record_of_a_run_has_the_password(tmp_path):
    args = get_args(AGENT)
    assert args.upstream == URL  # the run itself uses it
    about = json.dumps(describe_run(args), default=str)
    assert "s3cret" not in about and SHOWN in about
    assert "s3cret" not in command_line(args)


def test_records_show_no_password(tmp_path):
    from run.records import Records

    args = get_args([*AGENT, "--track", "none"])
    Records(args, tmp_path, 0).board.close()
    [events] = tmp_path.glob("events.*")
    assert SHOWN.encode() in events.read_bytes() and b"s3cret" not in events.read_bytes()


def test_wandb_gets_no_password(tmp_path, monkeypatch):
    """wandb also records the command line."""
    given = {}
    monkeypatch.setattr(sys, "argv", ["main.py", *AGENT])
    run = SimpleNamespace(id="1", define_metric=lambda *args, **options: None)
    fake = SimpleNamespace(
        init=lambda **options: given.update(options) or run,
        Settings=lambda **options: options,
        Error=RuntimeError,
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    from run.track import Tracker

    Tracker(get_args(AGENT), tmp_path)
    assert given["config"]["upstream"] == SHOWN and "s3cret" not in str(given)
    assert sys.argv == ["main.py", *AGENT[:-1], SHOWN]


def test_a_resumed_run_needs_the_password_again():
    args = get_args(AGENT)
    saved = masked(vars(args))
    assert changes(args, saved) == {}
    other = get_args([*AGENT[:-1], "https://me:0ther@example.com/v1"])
    line = f"--upstream https://***@example.com/v1 (was {SHOWN})"
    assert changes(other, saved) == {"upstream": line}


@pytest.mark.parametrize(
    ("url", "line"),
    [
        (
            "ftp://me:s3cret@host",
            "--upstream ftp://***@host: a URL begins with http:// or https://",
        ),
        (SHOWN, f"--upstream {SHOWN}: args.json keeps no passwords; type the URL again"),
    ],
)
def test_a_mistake_shows_no_password(url, line, capsys):
    with pytest.raises(SystemExit):
        get_args([*AGENT[:-1], url])
    assert capsys.readouterr().err == f"main.py: error: {line}\n"
