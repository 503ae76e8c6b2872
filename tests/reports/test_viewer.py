"""The dialogue log: cut into episodes, filtered, shown in a page, in the terminal and as a GIF."""

import base64
import html
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import write_run
from PIL import Image

from envs import make_env
from ppo.engines.text import action_token
from reports.dialogue import colour_bounds, escape_hidden, filter_episodes
from reports.replay import data_uris, replay
from reports.viewer import TEMPLATE, dialogue_page, main
from run.dialogue_log import LoggedEpisode, episodes_of, read_log

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# what a model might write
MARKUP = "<script>window.pwned = 1</script></script><img src=x onerror='window.pwned = 1'><!--"
ANSI = "\x1b[2J\x1b]0;owned\x07\x9b31mred\r"
SPUN = "abc\u202edcba\u2066 \u05e9\u05dc\u05d5\u05dd"  # an override, an isolate, and Hebrew


def turn(env=0, episode=0, step=1, update=0, reward=0.0, **changes) -> dict:
    """A record of two tokens, as run.turns writes it."""
    record = dict(update=update, env=env, turn=0, episode=episode, seed=10 * env + episode)
    record |= dict(
        step=step,
        observation="",
        prompt="user: where?",
        response="THINK: a\nACTION: b",
        action_at=9,
    )
    record |= dict(action="b", valid=True, reward=reward, terminated=False, truncated=False)
    record |= dict(success=False, fault="", response_truncated=False, prompt_overflow=False)
    record |= dict(tokens=["THINK: a\n", "ACTION: b"], logps=[-0.5, -1.0], values=[0.2, 0.4])
    return record | dict(advantages=[0.5, -1.0], kl=[0.0, 0.01]) | changes


# Environment 0: the last two of four turns that succeed, three until a time limit, one more turn.
# Environment 1: a failure, and an episode cut by a fault. Lines in the order of a log.
LOG = [
    turn(0, 2, 3, 0, -0.1, valid=False),
    turn(0, 2, 4, 0, 1.0, terminated=True, success=True),
    turn(0, 3, 1, 0, 0.25),
    turn(1, 0, 1, 0, 0.0, terminated=True),
    turn(1, 1, 1, 0, 0.5),
    turn(1, 1, 2, 0, 0.0, truncated=True, fault="environment 1: boom"),
    turn(0, 3, 2, 1, 0.25),
    turn(0, 3, 3, 1, 0.25, truncated=True),
    turn(0, 4, 1, 1, 0.0),
]


def write(folder: Path, records: list[dict], end: str = "") -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "trajectories.jsonl").write_text(text + end)
    return folder


def named(episodes: list[LoggedEpisode]) -> list[tuple[int, int]]:
    return [(episode.env, episode.number) for episode in episodes]


# ---- episodes -----------------------------------------------------------------------------------


def test_the_log_is_cut_into_episodes():
    episodes = episodes_of(LOG)
    assert named(episodes) == [(0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]
    outcomes = ["success", "time limit", "unfinished", "failure", "fault"]
    assert [episode.outcome for episode in episodes] == outcomes
    assert [episode.length for episode in episodes] == [2, 3, 1, 1, 2]
    # -.1 + 1, 3 x .25, 0, 0, .5 + 0
    assert [episode.ret for episode in episodes] == pytest.approx([0.9, 0.75, 0.0, 0.0, 0.5])
    assert [episode.invalid for episode in episodes] == [1, 0, 0, 0, 0]
    assert [episode.updates for episode in episodes] == [(0, 0), (0, 1), (1, 1), (0, 0), (0, 0)]
    assert [episode.missing for episode in episodes] == [2, 0, 0, 0, 0]  # turns 1 and 2
    assert [episode.seed for episode in episodes] == [2, 3, 4, 10, 11]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (dict(env=1), [(1, 0), (1, 1)]),
        (dict(env=0, number=3), [(0, 3)]),
        (dict(failures=True), [(0, 3), (1, 0), (1, 1)]),
        (dict(invalid=True), [(0, 2)]),
        (dict(updates=(1, 5)), [(0, 3), (0, 4)]),
        (dict(updates=(0, 0)), [(0, 2), (0, 3), (1, 0), (1, 1)]),
        (dict(longest=True), [(0, 3), (0, 2), (1, 1), (0, 4), (1, 0)]),  # 3 2 2 1 1
        (dict(failures=True, updates=(1, 1)), [(0, 3)]),
    ],
)
def test_filters(filters, expected):
    assert named(filter_episodes(episodes_of(LOG), **filters)) == expected


def test_a_turn_that_is_lost_counts_as_missing():
    assert [episode.missing for episode in episodes_of([LOG[2], LOG[7]])] == [1]  # turns 1 and 3


@pytest.mark.parametrize(
    ("tokens", "action_at", "split_at"),
    [
        (["THINK: a", "\n", "ACTION: b"], 9, 2),
        (["THINK: a", "\nACTION: b"], 9, 1),  # the marker begins inside of it
        (["THINK: a", "\n", "ACTION: b", "<end>"], 18, 4),  # no marker: action_at is the length
        (["ACTION: b"], 0, 0),
    ],
)
def test_the_token_in_which_the_action_begins(tokens, action_at, split_at):
    response = "".join(tokens).removesuffix("<end>")
    assert action_token(tokens, response, min(action_at, len(response))) == split_at


def test_colours_saturate_at_the_98th_percentile():
    # sizes .01, .02, ..., 1: 98 are below .99; where nearly all are 0 it is the largest, or 1
    sizes = [(-1) ** k * k / 100 for k in range(1, 101)]
    record = turn(tokens=["x"] * 100, advantages=sizes, values=[None] * 100, kl=[0.0] * 99 + [-0.3])
    assert colour_bounds(episodes_of([record])) == {"advantages": 0.99, "values": 1.0, "kl": 0.3}


def test_env_prints_unless_out_is_given(tmp_path, capsys):
    run, out = write(tmp_path, LOG), tmp_path / "page.html"
    assert main([str(run), "--env", "0"]) == 0
    assert "page" not in capsys.readouterr().out and not (run / "trajectories.html").exists()
    assert main([str(run), "--env", "0", "--out", str(out)]) == 0
    assert f"{out}: 3 episodes" in capsys.readouterr().out
    assert {episode["env"] for episode in data_of(out.read_text())["episodes"]} == {0}


# ---- bad input ----------------------------------------------------------------------------------


def test_a_torn_last_line_is_left_out(tmp_path, capsys):
    run = write(tmp_path, LOG, end='{"update": 1, "env"')
    assert read_log(run) == LOG
    assert capsys.readouterr().err == f"{run}/trajectories.jsonl: skipped line 10, incomplete\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no trajectories.jsonl"),
        ("", "is empty (--log-envs 0?)"),
        ('{"update": 0}\n[]\n', "has no turns in the current format"),
    ],
)
def test_no_log_is_one_clear_line(tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "trajectories.jsonl").write_text(content)
    assert main([str(tmp_path)]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("reports.viewer: error:") and message in line
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def test_no_such_episode(tmp_path, capsys):
    assert main([str(write(tmp_path, LOG)), "--env", "7"]) == 2
    assert "no episode" in capsys.readouterr().err
    assert main([str(tmp_path), "--gif", "--env", "0"]) == 2
    assert "choose it with --env and --episode" in capsys.readouterr().err


def test_numbers_that_are_not_finite(tmp_path):
    run = write(tmp_path, [turn(advantages=[float("nan"), float("-inf")])])
    [episode] = data_of(dialogue_page(run, episodes_of(read_log(run)), {}))["episodes"]
    assert episode["turns"][0]["advantages"] == [None, None]


# ---- what the model wrote is shown, not interpreted ---------------------------------------------


def data_of(text: str) -> dict:
    """Return what the page holds: the episodes, each with its turns."""
    index, *turns = re.findall(r'<script [^>]*type="application/json"[^>]*>(.*?)</script>', text)
    data = json.loads(index)
    for episode, mine in zip(data["episodes"], turns, strict=True):
        episode["turns"] = json.loads(mine)
    return data


def test_control_characters_are_written_out():
    # ESC [2J, BEL, CSI (one byte) and CR are gone; so are override and isolate, Hebrew stays
    assert escape_hidden("a\x1b[2J\x07\x9bb\r") == "a⟨U+001B⟩[2J⟨U+0007⟩⟨U+009B⟩b⟨U+000D⟩"
    assert escape_hidden(SPUN) == "abc⟨U+202E⟩dcba⟨U+2066⟩ \u05e9\u05dc\u05d5\u05dd"
    assert escape_hidden("\u2028\ud800\u200b\U000e0041") == "⟨U+2028⟩⟨U+D800⟩⟨U+200B⟩⟨U+E0041⟩"
    assert escape_hidden("kept:\n\tä 中 👩\u200d🔬") == "kept:\n\tä 中 👩\u200d🔬"


def with_tools(long: str = "or so") -> list[dict]:
    """An episode with a call, a message that cannot be read, and an answer to a user."""
    call = dict(name="add", arguments=dict(a=1, b="two"))
    reply = dict(role="assistant", content="Now:", tool_calls=[dict(function=call)])
    tokens = ["<think>", "sum</think>\n", "Now: ", "<tool_call>...", "<end>"]
    scores = dict(logps=[-1.0] * 5, values=[0.2] * 5, advantages=[0.5] * 5, kl=[0.0] * 5)
    fields = dict(tokens=tokens, response="".join(tokens[:-1]), action_at=24, action="[...]")
    result = [dict(role="tool", content=f"3\n{long}")]
    record = turn(step=1, **fields, **scores, reply=reply, followed=result)
    error = [dict(role="user", content="Error: no JSON.")]
    bad = dict(response="<tool_call>", tokens=["<tool_call>", ""], action_at=0, valid=False)
    answer = dict(reply=dict(role="assistant", content="3"), response="3", tokens=["3", ""])
    user = [dict(role="user", content="Thanks!")]
    return [
        record,
        turn(step=2, **bad, reply=dict(role="assistant", content="<tool_call>"), followed=error),
        turn(step=3, **answer, action_at=1, followed=user, terminated=True, success=True),
    ]


def hostile() -> dict:
    text = MARKUP + ANSI + SPUN
    tokens = dict(response=text, action_at=len(text), tokens=[MARKUP, ANSI + SPUN])
    return turn(observation=text, prompt=text, action=text, fault=text, truncated=True, **tokens)


def hostile_calls() -> dict:
    call = dict(name=MARKUP, arguments={MARKUP: ANSI + SPUN})
    reply = dict(role="assistant", content="", tool_calls=[dict(function=call)])
    followed = [dict(role="tool", content=MARKUP + ANSI + SPUN), dict(role=MARKUP, content=MARKUP)]
    return hostile() | dict(fault="", reply=reply, followed=followed)


def test_markup_stays_text_in_the_page(tmp_path):
    text = dialogue_page(tmp_path, episodes_of([hostile(), hostile_calls()]), {})
    # the scripts of the template and that of the episode are all that there is
    for tag, more in (("<script", 1), ("</script", 1), ("<img", 0), ("<!--", 0)):
        assert text.count(tag) == TEMPLATE.read_text().count(tag) + more
    record, calls = data_of(text)["episodes"][0]["turns"]
    assert [message["kind"] for message in calls["messages"]] == ["call", "result", MARKUP]
    assert record["tokens"][0] == MARKUP and record["prompt"].startswith(MARKUP)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", text)


@pytest.mark.parametrize("color", ["none", "advantages", "kl"])
def test_escapes_stay_text_in_the_terminal(tmp_path, capsys, color):
    run = write(tmp_path, [hostile(), hostile_calls()])
    assert main([str(run), "--env", "0", "--prompts", "--color", color]) == 0
    output = capsys.readouterr().out
    ours = re.compile(r"\x1b\[38;5;16;48;5;\d+m|\x1b\[0m")
    assert bool(ours.search(output)) == (color != "none")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", ours.sub("", output))
    assert "⟨U+001B⟩[2J" in output and "⟨U+202E⟩" in output and MARKUP in output


def test_texts_that_look_like_the_places_of_the_template_stay_texts(tmp_path):
    text = dialogue_page(tmp_path, episodes_of([turn(prompt="@DATA@ @TURNS@")]), {})
    assert data_of(text)["episodes"][0]["turns"][0]["prompt"] == "@DATA@ @TURNS@"


def test_the_page_asks_for_nothing_from_outside(tmp_path):
    text = dialogue_page(tmp_path, episodes_of(LOG), {})
    text = text.replace("http://www.w3.org/2000/svg", "")  # a name, which nothing fetches
    assert not re.search(r"https?:|url\(|@import|\bsrc=|<link|<iframe|fetch|innerHTML|eval", text)
    assert "default-src 'none'" in text


# ---- the terminal -------------------------------------------------------------------------------


def test_printed(tmp_path, capsys):
    assert main([str(write(tmp_path, LOG)), "--env", "0", "--episode", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    headline = "env 0 episode 2  success  2 turns  return +0.90  1 invalid  updates 0-0  seed 2"
    assert lines[0] == headline + "  2 turns missing"
    assert lines[2] == "==== " + lines[0]
    # means of two tokens: A (.5 - 1) / 2, V (.2 + .4) / 2, KL (0 + .01) / 2
    marks = "INVALID  reward -0.10  A -0.250  V +0.300  KL +0.005"
    assert lines[4] == "-- turn 3  update 0  " + marks
    assert lines[5:8] == ["THINK: a", "ACTION: b", "   -> b"]
    assert not any("where?" in line for line in lines)  # the prompt is folded


def test_calls_and_users_are_printed_in_plain_words(tmp_path, capsys):
    run = write(tmp_path, with_tools())
    assert main([str(run), "--env", "0"]) == 0
    turns = capsys.readouterr().out.split("\n\n-- ")[1:]
    assert [turn.splitlines()[1:] for turn in turns] == [
        ["   reasoning:", "<think>sum</think>", "   says:", "Now:",
         '   -> add(a=1, b="two")', "   <- add: 3", "      or so"],
        ["   call:", "<tool_call>", "   Error: no JSON."],
        ["   says:", "3", "   user: Thanks!"],
    ]  # fmt: skip
    assert main([str(run), "--env", "0", "--color", "advantages"]) == 0
    output = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "   call:\n<tool_call>...<end>\n   -> add(" in output  # the tokens have their colours


def test_the_page_holds_the_parts_of_a_turn_and_its_messages(tmp_path):
    [episode] = data_of(dialogue_page(tmp_path, episodes_of(with_tools()), {}))["episodes"]
    call, bad, answer = episode["turns"]
    assert call["parts"] == [["REASONING", 2], ["SAYS", 3], ["CALL", 5]]
    assert [(m["kind"], m["name"], m["failed"]) for m in call["messages"]] == [
        ("call", "add", False), ("result", "add", False),
    ]  # fmt: skip
    assert [(m["kind"], m["failed"]) for m in bad["messages"]] == [("error", True)]
    assert [(m["kind"], m["text"]) for m in answer["messages"]] == [("user", "Thanks!")]
    assert {turn["action"] for turn in episode["turns"]} == {None}  # the messages show it
    [old] = data_of(dialogue_page(tmp_path, episodes_of(LOG[:1]), {}))["episodes"]
    assert (old["turns"][0]["action"], old["turns"][0]["messages"]) == ("b", [])


def test_a_thousand_turns_make_a_small_file(tmp_path):
    prompt = "user: you see a wall 1 step forward\n" * 50
    run = write(tmp_path, [turn(0, k // 100, k % 100 + 1, prompt=prompt) for k in range(1000)])
    assert main([str(run), "--longest"]) == 0
    # what is added to the log is the template
    added = (run / "trajectories.html").stat().st_size - (run / "trajectories.jsonl").stat().st_size
    assert added < 30_000


def test_it_starts_without_torch_and_environments(tmp_path):
    code = "import sys, reports.viewer; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {"torch", "numpy", "PIL", "envs", "memory"} & set(loaded.split())


# ---- pictures -----------------------------------------------------------------------------------

RESPONSES = ["ACTION: turn left", "ACTION: fly", "ACTION: turn left"]


@pytest.fixture
def played(tmp_path) -> Path:
    """A log of three turns of an episode of BabyAI that goes on."""
    env = make_env("babyai-goto", format_penalty=0.1, max_episode_steps=9)
    env.reset(seed=6)
    records = []
    for step, response in enumerate(RESPONSES, start=1):
        _, reward, *_, info = env.step(response)
        does = dict(
            response=response, tokens=[response, ""], action=info["action"], valid=info["valid"]
        )
        records.append(turn(0, 0, step, 0, reward, seed=6, action_at=0, **does))
    args = dict(env_name="babyai-goto", format_penalty=0.1, max_episode_steps=9)
    (tmp_path / "args.json").write_text(json.dumps(dict(args=args)))
    return write(tmp_path, records)


def test_an_episode_is_played_again_for_its_pictures(played):
    env = make_env("babyai-goto")
    env.reset(seed=6)
    before = env.render()
    env.step(RESPONSES[0])
    after = env.render()
    uris = data_uris(played, episodes_of(read_log(played)))[0, 0]
    assert len(uris) == 4  # before each of three turns, and at the end
    for uri, expected in zip(uris, (before, after), strict=False):
        png = Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGB")
        wanted = Image.fromarray(expected)
        wanted.thumbnail((320, 320))
        # 64 colours instead of all: no channel is far off anywhere
        pairs = zip(png.tobytes(), wanted.tobytes(), strict=True)
        assert max(abs(a - b) for a, b in pairs) < 40
    assert main([str(played), "--frames"]) == 0
    [episode] = data_of((played / "trajectories.html").read_text())["episodes"]
    assert len(episode["frames"]) == 4 and episode["frames"][0] != episode["frames"][1]


def test_a_gif(played):
    assert main([str(played), "--gif", "--env", "0", "--episode", "0"]) == 0
    assert Image.open(played / "env-0-episode-0.gif").n_frames == 4


def test_episodes_that_cannot_be_replayed(played, capsys):
    env, records = make_env("babyai-goto", max_episode_steps=9), read_log(played)
    with pytest.raises(ValueError, match="1 of its turns are not in the log"):
        replay(env, LoggedEpisode(0, 0, records[1:2]))
    with pytest.raises(ValueError, match="replaying turn 2 gave another result"):
        replay(env, LoggedEpisode(0, 0, [records[0], records[1] | dict(reward=1.0)]))
    with pytest.raises(ValueError, match="does not render"):
        replay(make_env("toy"), LoggedEpisode(0, 0, records))
    # on a page such an episode has no images, and a warning is printed
    assert data_uris(played, [LoggedEpisode(0, 0, records[2:])]) == {}
    assert "no images of env 0 episode 0" in capsys.readouterr().err
    (played / "args.json").unlink()
    assert main([str(played), "--frames"]) == 2
    assert "args.json" in capsys.readouterr().err


# ---- in a browser -------------------------------------------------------------------------------

DRIVE = """
<script>
const rest = () => new Promise(done => setTimeout(done, 60))
const press = key => document.dispatchEvent(new KeyboardEvent('keydown', {key}))
const set = (id, value) => { $(id).value = value; $('filters').dispatchEvent(new Event('input')) }
const ids = () => listed.map(k => [data.episodes[k].env, data.episodes[k].number])
const shownAt = () => [data.episodes[opened].env, data.episodes[opened].number, at]
const background = k => $('turns').querySelectorAll('.text span')[k].style.background
;(async () => {
  const seen = {all: ids(), begun: shownAt(), about: $('about').textContent}
  set('first', '9'); seen.none = [ids().length, $('none').hidden]
  $('clear').click(); seen.cleared = ids().length
  set('outcome', 'failures'); seen.failures = ids(); set('outcome', '')
  $('invalid').click(); seen.invalid = ids(); $('invalid').click()
  set('order', 'longest'); seen.longest = ids(); set('order', 'time')
  set('first', '1'); seen.updates = ids(); set('first', '')
  location.hash = 'env-0-episode-3'; await rest()
  seen.opened = shownAt()
  press('j'); press('j'); press('j'); seen.last = shownAt()
  press('k'); seen.before = shownAt()
  press('g'); seen.ten = []
  for (const key of ['J', 'K', 'G']) { press(key); seen.ten.push(at) }
  seen.labels = [...$('strip').querySelectorAll('b')].map(label => label.textContent)
  seen.ranges = [...$('strip').querySelectorAll('span')].map(range => range.textContent)
  const plot = $('strip').querySelector('svg'), box = plot.getBoundingClientRect()
  const middle = {bubbles: true, clientX: box.left + box.width / 2}
  const pointer = type => plot.dispatchEvent(new MouseEvent(type, middle))
  pointer('click'); seen.clicked = shownAt(); seen.address = location.hash
  pointer('pointermove'); seen.pointed = $('tip').textContent; press('k'); press('j')
  seen.here = plot.querySelector('.here').getAttribute('x')
  location.hash = 'env-0-episode-2/4'; await rest(); seen.linked = shownAt()
  seen.invalidTurns = $('strip').querySelector('.invalid').getAttribute('d')
  location.hash = 'env-0-episode-3/2'; await rest()
  press('n'); await rest(); seen.next = shownAt()
  press('p'); await rest(); press('p'); await rest(); seen.first = shownAt()
  seen.blue = background(0); seen.orange = background(1)
  press('v'); seen.half = background(0)
  press('ArrowRight'); seen.tip = $('tip').textContent
  press('o'); await rest(); seen.prompt = $('turns').querySelector('pre').textContent
  seen.text = $('turns').querySelector('.text').textContent
  location.hash = 'env-2-episode-0'; await rest()
  seen.hostile = $('turns').querySelector('.text').textContent
  location.hash = 'env-3-episode-0'; await rest()
  const both = row => [row.children[0].textContent, row.children[1].textContent]
  const rows = card => [...card.querySelectorAll('.part')].map(both)
  seen.rows = [...cards()].map(rows)
  const long = $('turns').querySelector('.long'), more = long.nextSibling
  seen.long = [long.textContent.length, more.textContent]; more.click()
  seen.whole = [long.className, more.textContent]
  seen.open = $('turns').querySelector('.thought').open
  press('r'); seen.folded = !$('turns').querySelector('.thought').open
  press('ArrowRight'); seen.reached = $('turns').querySelector('.thought').open
  seen.coloured = [0, 1, 2, 3].map(background)
  seen.heads = [...$('turns').querySelectorAll('h3')].map(head => head.children[2].textContent)
  $('find').value = '<THINK>SU'; $('find').dispatchEvent(new Event('change'))
  seen.found = [ids(), $('hit').textContent, [...CSS.highlights.get('found')].map(String)]
  press('s'); seen.nowhere = shownAt()
  $('find').value = '3'; $('find').dispatchEvent(new Event('change'))
  press('s'); seen.hit = shownAt()
  seen.hitTurns = $('strip').querySelector('.hit').getAttribute('d')
  $('find').value = ''; $('find').dispatchEvent(new Event('input', {bubbles: true}))
  seen.unsearched = [ids().length, CSS.highlights.size, $('hit').hidden]
  seen.markdown = markdown(opened)
  seen.fences = ['plain', 'a ``` b'].map(fenced)
  location.hash = 'env-4-episode-0'; await rest()
  seen.hostileRows = rows(cards()[0])
  seen.elements = $('turns').querySelectorAll('script, section img').length
  seen.pwned = window.pwned === undefined
  press('Escape'); await rest(); seen.closed = opened
  const report = make('pre', document.body, JSON.stringify(seen)); report.id = 'report'
})()
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_in_a_browser(tmp_path):
    calls = [record | dict(env=3) for record in with_tools("or so " * 300)]
    records = [*LOG, hostile() | dict(env=2), *calls, hostile_calls() | dict(env=4)]
    run = write_run(tmp_path / "run", [{"turns": 8}], model="/models/tiny", advantages="rloo")
    text = dialogue_page(run, episodes_of(records), {})
    (tmp_path / "page.html").write_text(text.replace("</html>", DRIVE + "</html>"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,800"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000"]
    command += ["--dump-dom", f"file://{tmp_path / 'page.html'}"]
    browser = subprocess.run(command, capture_output=True, text=True, timeout=300)
    report = re.search('<pre id="report">(.*?)</pre>', browser.stdout, re.DOTALL)
    assert report, browser.stderr[-3000:]
    seen = json.loads(html.unescape(report[1]))
    assert seen["all"] == [[0, 2], [0, 3], [0, 4], [1, 0], [1, 1], [2, 0], [3, 0], [4, 0]]
    assert seen["begun"] == [0, 3, 0]  # the first whole episode: of 0, 2 turns are missing
    assert seen["about"] == (
        "environmenttoymodeltinyadvantagesrloobatch2 x 4 turnsseed1updates1 of 3"
        "success0.250 (update 0)commitaaaaaaa-dirty"
    )
    assert seen["none"] == [0, False] and seen["cleared"] == 8
    assert seen["failures"] == [[0, 3], [1, 0], [1, 1], [2, 0], [4, 0]]
    assert seen["invalid"] == [[0, 2], [3, 0]]
    assert seen["longest"] == [
        [0, 3], [3, 0], [0, 2], [1, 1], [0, 4], [1, 0], [2, 0], [4, 0],
    ]  # fmt: skip
    assert seen["updates"] == [[0, 3], [0, 4]]
    assert seen["opened"] == [0, 3, 0] and seen["last"] == [0, 3, 2]  # three turns: j stops there
    assert seen["before"] == [0, 3, 1] and seen["next"] == [0, 4, 0] and seen["first"] == [0, 2, 0]
    assert seen["ten"] == [2, 0, 2]  # of three turns
    # rewards .25; means of values .2 and .4, advantages .5 and -1, log-probs -.5 and -1
    assert seen["labels"] == ["reward", "value", "advantage", "entropy", ""]
    assert seen["ranges"] == ["+0.00 … +0.25", "+0.00 … +0.30", "−0.25 … +0.00", "+0.00 … +0.75"]
    assert seen["clicked"] == [0, 3, 1] and seen["address"] == "#env-0-episode-3/2"
    assert seen["pointed"] == (
        "turn 2\nreward     +0.250\nvalue      +0.300\nadvantage  −0.250\nentropy    +0.750"
    )
    assert float(seen["here"]) == pytest.approx(1.5 - 3 / 600)  # the middle of the second turn
    assert seen["linked"] == [0, 2, 1]  # turns 3 and 4 are in the log
    assert seen["invalidTurns"] == "M0 0h1v1h-1z"
    # a search ignores case, and a hit may cover several tokens
    assert seen["found"] == [[[3, 0]], "1 found ↓", ["<think>su"]]
    assert seen["nowhere"] == [3, 0, 0]
    assert seen["hit"] == [3, 0, 2] and seen["hitTurns"] == "M0 0h1v1h-1zM2 0h1v1h-1z"
    assert seen["unsearched"] == [8, 0, True]
    assert seen["markdown"].startswith("# run: env 3 · episode 0\n\nsuccess · 3 turns")
    assert '**EXECUTED**\n\n```\nadd(a=1, b="two")\n```\n\n**RESULT**' in seen["markdown"]
    assert seen["markdown"].count("**PROMPT**") == 1 and "**USER**" in seen["markdown"]
    assert seen["fences"] == ["```\nplain\n```", "````\na ``` b\n````"]
    # bounds: advantages 1, values .4: .5 -> .6 x .5 and -1 -> .6; value .2 -> .6 x .5
    assert seen["blue"] == "rgb(var(--above) / 0.30)"
    assert seen["orange"] == "rgb(var(--below) / 0.60)"
    assert seen["half"] == "rgb(var(--above) / 0.30)"
    assert "advantage  +0.5000" in seen["tip"] and "value      +0.2000" in seen["tip"]
    assert seen["prompt"] == "user: where?" and seen["text"] == "THINK: a\n"
    assert seen["hostile"].startswith(MARKUP + "⟨U+001B⟩[2J")
    assert seen["rows"] == [
        [["REASONING", "2 tokens<think>sum</think>\n"], ["SAYS", "Now: "],
         ["CALL", "<tool_call>...<end>"], ["EXECUTED", 'add(a=1, b="two")'],
         ["RESULT", f"add\n3\n{'or so ' * 300}show all of 1,806 characters"]],
        [["CALL", "<tool_call>"], ["ERROR", "Error: no JSON."]],
        [["SAYS", "3"], ["USER", "Thanks!"]],
    ]  # fmt: skip
    assert seen["long"] == [1806, "show all of 1,806 characters"]
    assert seen["whole"] == ["text result", "show less"]
    assert seen["open"] and seen["folded"] and seen["reached"]
    assert seen["heads"] == ["valid", "could not be parsed", "valid"]
    assert seen["coloured"] == ["rgb(var(--above) / 0.30)"] * 4  # by value: .2 of .4
    labels = [label for label, _ in seen["hostileRows"]]
    assert labels == ["SEES", "SAYS", "EXECUTED", "RESULT", MARKUP.upper()]
    assert seen["hostileRows"][2][1].startswith(MARKUP + "(\n  " + MARKUP)
    assert seen["elements"] == 0 and seen["pwned"] and seen["closed"] is None
