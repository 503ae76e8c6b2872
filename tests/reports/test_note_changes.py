"""How notes change over an episode, as the viewer shows it."""

from test_exchange import turn
from test_viewer import turn as logged

from reports.exchange import parts_of
from reports.notes import note_changes
from reports.viewer import dialogue_page
from run.dialogue_log import episodes_of


def wrote(notes: str | None) -> dict:
    text = "THINK: a\n" + ("" if notes is None else f"NOTES: {notes}\n") + "ACTION: b"
    return turn(text, text.index("ACTION"))


def test_the_parts_of_a_turn_with_notes_or_a_summary():
    parts = {part.label: part.text for part in parts_of(wrote("n"))}
    assert parts == {"THINK": "THINK: a\n", "NOTES": "NOTES: n\n", "ACTION": "ACTION: b"}
    parts = {part.label: part.text for part in parts_of(turn("THINK: a\nSUMMARY: s", 9))}
    assert parts == {"THINK": "THINK: a\n", "SUMMARY": "SUMMARY: s"}


def test_what_each_turn_changes():
    episode = [wrote("mill red,\ninn blue"), wrote(None), wrote("inn blue"), wrote("inn blue")]
    episode.append(wrote("inn white"))
    assert note_changes(episode) == [
        [("new", "mill red,\ninn blue")],
        [],
        [("gone", "mill red,\n"), ("same", "inn blue")],
        [("same", "inn blue")],
        [("same", "inn "), ("gone", "blue"), ("new", "white")],
    ]


def test_the_page_gets_the_changes_escaped(tmp_path):
    text = "NOTES: a </script>\nACTION: b"
    record = dict(response=text, tokens=[text], action_at=text.index("ACTION"))
    scores = dict.fromkeys(("logps", "values", "advantages", "kl"), [0.0])
    page = dialogue_page(tmp_path, episodes_of([logged(**record, **scores), logged(step=2)]), {})
    assert page.count('"notes":[["new","a \\u003c/script>"]]') == 1  # the second turn has none
