"""--engine: names, numbers of ranks that share an engine, and engines of the user's own."""

import pytest

from common.engine_flag import check_engine, check_sharing, is_own, parted
from common.plugins import UserError


@pytest.mark.parametrize(
    ("engine", "name", "ranks", "own"),
    [
        ("auto", "auto", 1, False),
        ("vllm", "vllm", 1, False),
        ("vllm:8", "vllm", 8, False),
        ("vllm-lora:2", "vllm-lora", 2, False),
        ("module:Class", "module:Class", 1, True),
    ],
)
def test_parts(engine, name, ranks, own):
    assert parted(engine) == (name, ranks) and is_own(engine) == own
    check_engine(engine)


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("vlm", "unknown engine 'vlm'; choices: auto, vllm, vllm-lora, transformers, vllm:2"),
        (":2", "unknown engine ':2'"),
        ("vllm:0", "--engine vllm:0: ranks can share vllm and vllm-lora"),
        ("transformers:2", "--engine transformers:2: ranks can share vllm and vllm-lora"),
        ("auto:2", "--engine auto:2: ranks can share"),
        ("module:Class:2", "--engine module:Class:2: ranks can share"),
    ],
)
def test_mistakes(engine, line):
    with pytest.raises(UserError, match=f"^{line}"):
        check_engine(engine)


def test_ranks_divide_into_those_that_share():
    check_sharing("vllm:4", 8)
    check_sharing("module:Class", 3)
    line = "^--engine vllm:4: 4 ranks share an engine, and this run has 6; --engine vllm gives"
    with pytest.raises(UserError, match=line):
        check_sharing("vllm:4", 6)
