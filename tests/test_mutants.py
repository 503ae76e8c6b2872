"""The list of seeded faults fits the code, and a fault that is seeded is found."""

from dataclasses import replace

from mutants import MUTANTS, ROOT, Mutant, survives


def test_each_fault_fits_its_file():
    for mutant in MUTANTS:
        assert (ROOT / mutant.file).read_text().count(mutant.old) == 1, mutant.about
        assert mutant.old != mutant.new and (ROOT / mutant.tests.split(" ")[0]).exists()
    assert len({mutant.about for mutant in MUTANTS}) == len(MUTANTS)


def test_a_fault_is_found_and_taken_out_again(tmp_path):
    source = "def twice(x):\n    return 2 * x\n"
    (tmp_path / "sums.py").write_text(source)
    test = "from sums import twice\n\ndef test_twice():\n    assert twice(2) == 4\n"
    (tmp_path / "test_sums.py").write_text(test)
    mutant = Mutant("three times", "sums.py", "2 * x", "3 * x", "test_sums.py")
    assert not survives(mutant, tmp_path)
    assert survives(replace(mutant, new="x + x"), tmp_path)  # the same for any x
    assert survives(replace(mutant, new="x * x"), tmp_path)  # what the test does not see
    assert (tmp_path / "sums.py").read_text() == source
