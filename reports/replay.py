"""Renders logged episodes as images. The log has no images, so the episodes are replayed.

The same seed and responses give the same turns. Every replayed turn is checked against the log.
"""

import base64
import io
import json
import sys
from pathlib import Path

from PIL import Image, ImageDraw

from common.plugins import UserError
from common.run_file import read_text, rewritten
from envs import make_env
from envs.asking.summaries import SUMS_UP
from envs.trust import refuse_foreign
from envs.variants import make_variant
from reports.dialogue import escape_hidden
from run.dialogue_log import LoggedEpisode

MAX_SIDE = 320  # pixels of an image on the page


def data_uris(
    run: Path, episodes: list[LoggedEpisode], trust: bool = False
) -> dict[tuple[int, int], list[str]]:
    """Map (env, episode) to PNG data URIs, for the episodes that can be replayed.

    trust: see `env_of_run`
    """
    env, found = env_of_run(run, trust), {}
    for episode in episodes:
        try:
            found[episode.env, episode.number] = [_uri(image) for image in replay(env, episode)]
        except ValueError as error:
            print(f"no images of {error}", file=sys.stderr)
    env.close()
    return found


def save_gif(out: Path, run: Path, episode: LoggedEpisode, trust: bool = False) -> None:
    """Write a GIF with a caption under each image. UserError: the episode cannot be replayed."""
    env = env_of_run(run, trust)
    images = replay(env, episode)
    env.close()
    captions = ["start"]
    for turn in episode.turns:
        mark = "" if turn["valid"] else " (invalid)"
        action = escape_hidden(turn["action"])
        captions.append(f"{turn['step']}  {action}{mark}  {turn['reward']:+.2f}")
    captions[-1] += f"  {episode.outcome}"
    pairs = zip(images, captions, strict=True)
    first, *rest = [_captioned(image, caption) for image, caption in pairs]
    times = [400] * len(rest) + [2500]  # milliseconds
    with rewritten(out, "wb") as file:
        first.save(file, "GIF", save_all=True, append_images=rest, duration=times, loop=0)


def env_of_run(run: Path, trust: bool = False):
    """Make the environment of a run.

    trust: whether it may be a user's own, whose module is imported
    UserError: it is, without `trust`, or args.json does not say which one it was
    """
    try:
        args = json.loads(read_text(run / "args.json"))["args"]
        if not trust:
            refuse_foreign(run, {"env_name": args["env_name"]})
        options = {name: args[name] for name in ("format_penalty", "max_episode_steps")}
        options["on_invalid"] = args.get("on_invalid", "default")
        return make_variant(args["env_name"], **options, data=args.get("data"))
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(f"{run / 'args.json'} does not name an environment: {error!r}") from error


def first_picture(name: str, seed: int = 7) -> Image.Image:
    """Return an image of an environment at the start of an episode. UserError: it renders none."""
    env = make_env(name)
    env.reset(seed=seed)
    image = _picture(env, name)
    env.close()
    return image


def replay(env, episode: LoggedEpisode) -> list[Image.Image]:
    """Return images before each turn and after the last. UserError: replaying is not possible."""
    if episode.missing:
        raise UserError(f"{episode.name}: {episode.missing} of its turns are not in the log")
    env.reset(seed=episode.seed)
    images = [_picture(env, episode.name)]
    for turn in episode.turns:
        if turn["fault"]:  # the environment failed before it acted
            images.append(images[-1])
            break
        if turn["action"] == SUMS_UP:  # the environment waited
            images.append(images[-1])
            continue
        _, reward, _, _, info = env.step(turn["response"])
        if (info["action"], reward) != (turn["action"], turn["reward"]):
            raise UserError(f"{episode.name}: replaying turn {turn['step']} gave another result")
        images.append(_picture(env, episode.name))
    return images


def _picture(env, name: str) -> Image.Image:
    try:
        frame = env.render()
    except NotImplementedError:
        frame = None
    if frame is None:
        raise UserError(f"{name}: its environment does not render")
    return Image.fromarray(frame)


def _uri(image: Image.Image) -> str:
    image = image.copy()
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    file = io.BytesIO()
    image.quantize(64).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _captioned(image: Image.Image, caption: str) -> Image.Image:
    framed = Image.new("RGB", (image.width, image.height + 18), "black")
    framed.paste(image)
    ImageDraw.Draw(framed).text((4, image.height + 3), caption, fill="white")
    return framed
