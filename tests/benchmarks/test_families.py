"""The table of families in docs/larger-models.md says what a run of the code finds."""

import re
import warnings
from pathlib import Path

import pytest

from benchmarks.families import FAMILIES, cells, try_family

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "larger-models.md").read_text()
LINES = re.findall(r"^\| .*$", PAGE, re.M)
ROWS = {line.split(" | ")[0].removeprefix("| "): line for line in LINES}


@pytest.mark.parametrize("family", FAMILIES, ids=[family[0] for family in FAMILIES])
def test_the_page_has_what_is_found(family):
    name, config, model, more = family
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peft, about experts
        assert ROWS[name] == cells(try_family(name, config, model, more))


def test_what_trains_and_what_is_refused():
    refused = {name for name, line in ROWS.items() if line.split(" | ")[1:2] == ["no"]}
    assert refused == {"Gemma 4 (text)"}
    assert all(
        " yes | yes |" in ROWS[name] for name in ("Qwen3.5", "gpt-oss", "OLMo 3", "Granite", "LFM2")
    )
