"""The table of families in docs/larger-models.md says what a run of the code finds."""

import re
from pathlib import Path

import pytest

from benchmarks.families import FAMILIES, cells, recorded, try_family
from benchmarks.family_runs import try_run, write_model

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "larger-models.md").read_text()
LINES = re.findall(r"^\| .*$", PAGE, re.M)
ROWS = {line.split(" | ")[0].removeprefix("| "): line for line in LINES}
NAMES = [family[0] for family in FAMILIES]


@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_the_page_has_what_is_found(family):
    name, config, model, more = family
    assert ROWS[name] == cells(try_family(name, config, model, more))


def test_what_trains_and_what_is_refused():
    refused = {name for name, line in ROWS.items() if line.split(" | ")[1:2] == ["no"]}
    assert refused == {"Gemma 4 (text)"}


@pytest.mark.parametrize("name", NAMES)
def test_each_family_has_run_with_both_engines_or_has_a_reason(name):
    found = recorded(name)
    assert list(found) == ["transformers", "vllm"]
    for outcome in found.values():
        if set(outcome) != {"reason"}:
            assert outcome["updates"] == 2 and outcome["gap"] < 1e-3
    assert ("reason" in found["transformers"]) == (name == "Gemma 4 (text)")


def test_a_run_is_as_recorded(tmp_path):
    name, config, model, more = next(family for family in FAMILIES if family[0] == "LFM2")
    write_model(tmp_path / "model", config, model, more)
    found = try_run(tmp_path, "transformers")
    assert found["updates"] == 2 and found["gap"] < 1e-3
