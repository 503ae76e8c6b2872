"""The table of a sweep, with numbers by hand."""

from reports.sweep_table import sweep_table


def end(success: float) -> dict:
    return {"eval/success": success, "eval/return": 2 * success}


def test_means_have_t_intervals_and_differences_are_paired_by_seed():
    # a: .2, .4: mean .3, standard error .1; t with one degree of freedom is 12.706
    # b - a: .3, .1 (seed 3 has no partner): mean .2, standard error .1
    # b: .5, .5, .5: no spread
    ends = [("a", 1, end(0.2)), ("b", 1, end(0.5)), ("a", 2, end(0.4)), ("b", 2, end(0.5))]
    text = sweep_table([*ends, ("b", 3, end(0.5)), ("c", 1, end(0.1))], 9)
    head, _, a, b, c, *_ = text.splitlines()
    assert head == "|  | seeds | success | difference | return | difference |"
    assert a.startswith("| a | 2 | 0.300 [-0.971, 1.571] | - | 0.600 [-1.941, 3.141] | - |")
    assert b.startswith("| b | 3 | 0.500 [0.500, 0.500] | +0.200 [-1.071, +1.471] | 1.000 [")
    assert c == "| c | 1 | 0.100 | -0.100 | 0.200 | -0.200 |"
    assert "3 of 9 runs are not finished." in text
