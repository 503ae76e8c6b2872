"""What libraries raise becomes one line; checks and a lack of memory stay as they are."""

import pytest

from common.errors import OutOfMemory, RunError, as_run_error
from common.plugins import UserError


@pytest.mark.parametrize("error", [KeyError("x"), AssertionError("a\nb"), RuntimeError()])
def test_any_error_of_a_library_becomes_one_line(error):
    with pytest.raises(RunError) as found, as_run_error("it fails", "try another"):
        raise error
    said = {KeyError: "KeyError: 'x'", AssertionError: "AssertionError: a b"}
    reason = said.get(type(error), "RuntimeError")
    assert str(found.value) == f"it fails ({reason}); try another"
    assert found.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [RunError("a"), UserError("b"), OutOfMemory("c"), MemoryError(), RuntimeError("out of memory")],
)
def test_checks_and_a_lack_of_memory_stay_as_they_are(error):
    with pytest.raises(type(error)) as found, as_run_error("it fails", "try another"):
        raise error
    assert found.value is error


def test_what_does_not_end_a_run_by_mistake_passes():
    with pytest.raises(KeyboardInterrupt), as_run_error("it fails", "try another"):
        raise KeyboardInterrupt
