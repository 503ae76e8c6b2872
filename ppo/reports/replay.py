"""Pictures of logged episodes: environments draw only when asked, so they are played again.

Equal seeds and equal responses lead to the same place; that they did is checked against the log.
A program of its own, beside the trainer, and the one file of storage/ that makes environments.
"""

import base64
import io
import json
import sys
from pathlib import Path

from PIL import Image, ImageDraw

from envs import make_env
from ppo.reports.dialogue import Episode, shown

LARGEST = 320  # pixels on a side, in the page


def data_uris(run: Path, episodes: list[Episode]) -> dict[tuple[int, int], list[str]]:
    """(env, episode) -> PNG pictures before each turn and after the last, where there are any."""
    env, found = make(run), {}
    for episode in episodes:
        try:
            found[episode.env, episode.number] = [_uri(image) for image in play(env, episode)]
        except ValueError as error:
            print(f"no pictures of {error}", file=sys.stderr)
    env.close()
    return found


def save_gif(out: Path, run: Path, episode: Episode) -> None:
    """ValueError: the episode cannot be played again."""
    env = make(run)
    images = play(env, episode)
    env.close()
    captions = ["start"]
    for turn in episode.turns:
        mark = "" if turn["valid"] else " (invalid)"
        captions.append(f"{turn['step']}  {shown(turn['action'])}{mark}  {turn['reward']:+.2f}")
    captions[-1] += f"  {episode.outcome}"
    images = [_captioned(*pair) for pair in zip(images, captions, strict=True)]
    times = [400] * (len(images) - 1) + [2500]  # milliseconds
    images[0].save(out, save_all=True, append_images=images[1:], duration=times, loop=0)


def make(run: Path):
    """The environment of a run. ValueError: it is not known, or cannot be made."""
    try:
        args = json.loads((run / "args.json").read_text())["args"]
        options = {name: args[name] for name in ("format_penalty", "max_episode_steps")}
        return make_env(args["env_name"], **options)
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{run / 'args.json'} does not say what was played: {error!r}") from error


def play(env, episode: Episode) -> list[Image.Image]:
    """Pictures before each turn and after the last. ValueError: it cannot be played again."""
    name = f"env {episode.env} episode {episode.number}"
    if episode.missing:
        raise ValueError(f"{name}: {episode.missing} of its turns are not in the log")
    env.reset(seed=episode.seed)
    images = [_picture(env, name)]
    for turn in episode.turns:
        if turn["fault"]:  # the environment did nothing
            images.append(images[-1])
            break
        _, reward, _, _, info = env.step(turn["response"])
        if (info["action"], reward) != (turn["action"], turn["reward"]):
            raise ValueError(f"{name}: turn {turn['step']}, played again, led elsewhere")
        images.append(_picture(env, name))
    return images


def _picture(env, name: str) -> Image.Image:
    try:
        frame = env.render()
    except NotImplementedError:
        frame = None
    if frame is None:
        raise ValueError(f"{name}: its environment draws none")
    return Image.fromarray(frame)


def _uri(image: Image.Image) -> str:
    image = image.copy()
    image.thumbnail((LARGEST, LARGEST))
    file = io.BytesIO()
    image.quantize(64).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _captioned(image: Image.Image, caption: str) -> Image.Image:
    framed = Image.new("RGB", (image.width, image.height + 18), "black")
    framed.paste(image)
    ImageDraw.Draw(framed).text((4, image.height + 3), caption, fill="white")
    return framed
