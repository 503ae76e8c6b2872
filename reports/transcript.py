"""Prints logged episodes: first a list of them, then every turn, with coloured tokens."""

from collections.abc import Iterator

from reports import dialogue
from reports.dialogue import escape_hidden
from reports.exchange import LoggedMessage, Part, messages_of, parts_of
from run.dialogue_log import LoggedEpisode
from run.logged_turn import SCORES

# Background colours (of 256) for black text, from weak to strong
BELOW, ABOVE = (230, 223, 216, 215, 208), (195, 159, 117, 81, 75)


def transcript_lines(episodes: list[LoggedEpisode], prompts: bool, colour: str) -> Iterator[str]:
    """Yield a list of the episodes, then the turns of each."""
    bound = dialogue.colour_bounds(episodes).get(colour)
    yield from map(_headline, episodes)
    for episode in episodes:
        yield f"\n==== {_headline(episode)}"
        for turn in episode.turns:
            yield from _turn_lines(turn, prompts, colour, bound)


def _headline(episode: LoggedEpisode) -> str:
    first, last = episode.updates
    line = (
        f"{episode.name}  {episode.outcome}  {episode.length} turns  return {episode.ret:+.2f}  "
        f"{episode.invalid} invalid  updates {first}-{last}  seed {episode.seed}"
    )
    return line + f"  {episode.missing} turns missing" * (episode.missing > 0)


def _turn_lines(turn: dict, prompts: bool, colour: str, bound: float | None) -> Iterator[str]:
    marks = ["valid" if turn["valid"] else "INVALID", f"reward {turn['reward']:+.2f}"]
    for name, letter in zip(SCORES, ("A", "V", "KL"), strict=True):
        known = [x for x in turn[name] if x is not None]
        marks += [f"{letter} {sum(known) / len(known):+.3f}"] if known else []
    marks += ["cut off at the response limit"] * turn["response_truncated"]
    marks += ["prompt over the limit"] * turn["prompt_overflow"]
    yield f"\n-- turn {turn['step']}  update {turn['update']}  " + "  ".join(marks)
    if prompts:
        yield from ("   | " + line for line in escape_hidden(turn["prompt"]).split("\n"))
    shown = {part.label: _shown(turn, part, colour, bound) for part in parts_of(turn)}
    if shown.keys() <= {"THINK", "NOTES", "ACTION", "SUMMARY"}:  # they start with their names
        yield "".join(shown.values())
    else:
        if bound is None and turn["valid"]:
            shown.pop("CALL", "")  # the messages below show the call
        for label, text in shown.items():
            yield f"   {label.lower()}:\n{text.strip()}"
    if turn["fault"]:
        yield "   " + escape_hidden(f"fault: {turn['fault']}")
    elif not turn.get("reply"):
        yield "   " + escape_hidden(f"-> {turn['action']}")
    else:
        yield from map(_message_line, messages_of(turn))


def _shown(turn: dict, part: Part, colour: str, bound: float | None) -> str:
    """Return the text of a part, with coloured tokens if there is a bound."""
    if bound is None:
        return escape_hidden(part.text)
    pairs = zip(turn["tokens"], turn[colour], strict=True)
    pieces = [_painted(escape_hidden(piece), x, bound) for piece, x in pairs]
    return "".join(pieces[part.first : part.end])


def _message_line(message: LoggedMessage) -> str:
    prefixes = {"call": "-> ", "result": f"<- {message.name}: ", "error": ""}
    text = prefixes.get(message.kind, f"{message.kind}: ") + message.text
    return "   " + escape_hidden(text).replace("\n", "\n      ")


def _painted(piece: str, x: float | None, bound: float) -> str:
    level = min(int(5 * abs(x or 0) / bound + 0.5), 5)
    if level == 0:
        return piece
    code = (ABOVE if x > 0 else BELOW)[level - 1]
    start, end = f"\x1b[38;5;16;48;5;{code}m", "\x1b[0m"
    return start + piece.replace("\n", f"{end}\n{start}") + end
