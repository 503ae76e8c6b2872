"""Every benchmark can be imported, so that none lags behind the code that it measures."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))
NAMES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES]


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_imported(name):
    importlib.import_module(name)
