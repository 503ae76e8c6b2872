"""Micro-batches: a cut by hand, padding and mask, and what holds for any lengths."""

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.minibatch import Sample, micro_batches

# lengths: prompt + response = 3 + 1, 1 + 2, 2 + 3
SAMPLES = [
    Sample([1, 2, 3], [7], 0.5),
    Sample([4], [8, 9], 1.0),
    Sample([5, 6], [10, 11, 12], 2.0),
]


def cut(rows, token_budget, samples=SAMPLES):
    return list(micro_batches(samples, [[row] for row in rows], token_budget))


def test_padding_and_mask_written_out():
    # Sorted by length: row 1 (3), row 0 (4), row 2 (5). Two rows of 4 are 8 <= 10 padded tokens,
    # three rows of 5 would be 15, so the third row starts a micro-batch of its own.
    first, second = cut([0, 1, 2], token_budget=10)
    assert first.rows.tolist() == [1, 0]
    assert first.ids.tolist() == [[4, 8, 9, 0], [1, 2, 3, 7]]
    assert first.response_mask.int().tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]
    assert first.tokens.tolist() == [8, 9, 7]
    assert first.temperature.tolist() == [1.0, 1.0, 0.5]
    assert second.rows.tolist() == [2]
    assert second.ids.tolist() == [[5, 6, 10, 11, 12]]
    assert second.response_mask.int().tolist() == [[0, 0, 1, 1, 1]]


def test_the_budget_counts_padding():
    # 3 + 4 + 5 = 12 tokens, but 3 rows padded to 5 are 15
    assert len(cut([0, 1, 2], token_budget=14)) == 2
    assert len(cut([0, 1, 2], token_budget=15)) == 1


def test_a_row_above_the_budget_stands_alone():
    assert [batch.rows.tolist() for batch in cut([0, 1, 2], token_budget=1)] == [[1], [0], [2]]


def test_only_the_rows_that_are_asked_for():
    (batch,) = cut([2, 0], token_budget=100)
    assert batch.rows.tolist() == [0, 2]
    assert batch.ids.tolist() == [[1, 2, 3, 7, 0], [5, 6, 10, 11, 12]]
    assert cut([], token_budget=100) == []


def test_the_padding_id_may_be_a_real_token():
    # id 0 stands in a prompt and in a response; the mask tells it from padding
    (batch,) = cut([0, 1], 100, [Sample([0, 1], [0, 2]), Sample([0], [0])])
    assert batch.ids.tolist() == [[0, 0, 0, 0], [0, 1, 0, 2]]
    assert batch.response_mask.int().tolist() == [[0, 1, 0, 0], [0, 0, 1, 1]]


turns = st.tuples(st.integers(1, 9), st.integers(1, 9))


@settings(max_examples=100, deadline=None)
@given(turns=st.lists(turns, min_size=1, max_size=12), budget=st.integers(1, 60), data=st.data())
def test_each_row_once_sorted_within_the_budget(turns, budget, data):
    # all ids differ, so that a token in the wrong place shows
    prompts = [[100 * i + k for k in range(p)] for i, (p, _) in enumerate(turns)]
    responses = [[100 * i + 50 + k for k in range(r)] for i, (_, r) in enumerate(turns)]
    rows = data.draw(st.permutations(range(len(turns))))
    samples = [Sample(p, r) for p, r in zip(prompts, responses, strict=True)]
    seen, lengths = [], []
    for batch in cut(rows, budget, samples):
        B, L = batch.ids.shape
        assert B * L <= budget or B == 1
        for b, row in enumerate(batch.rows.tolist()):
            length = sum(turns[row])
            assert batch.ids[b, :length].tolist() == prompts[row] + responses[row]
            assert batch.ids[b][batch.response_mask[b]].tolist() == responses[row]
            seen.append(row)
            lengths.append(length)
        assert lengths[-1] == L  # no wider than its longest row
    assert sorted(seen) == sorted(rows)
    assert lengths == sorted(lengths)
