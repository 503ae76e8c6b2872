"""Which storage a command line asks for: the schedule of a batch, its layout, and its scoring."""

from functools import partial

from common.ranks import Ranks
from storage.batch import Batch, Scoring, trained_scores
from storage.collection import Collection, FixedTurns, at_faults
from storage.credit import with_credit
from storage.criticless import CriticlessBatch
from storage.engine_scores import engine_scores
from storage.merged import merged
from storage.minibatch import one_per_turn
from storage.schedules import WholeEpisodes, at_time_limits, never
from storage.valued import ValuedBatch

ALWAYS = partial(merged, worth=0.0)  # otherwise turns are merged if it saves enough
LAYOUTS = {  # --rows
    "auto": merged,
    "padded": one_per_turn,
    "packed": one_per_turn,
    "merged": ALWAYS,
    "packed+merged": ALWAYS,
}


def make_storage(batch, update, ranks: Ranks) -> Collection:
    """Make the storage for the flags of the batch; those of the update say how it is scored."""
    scoring = Scoring(
        token_budget=update.token_budget,
        ranks=ranks,
        layout=LAYOUTS[update.rows],
        old_scores=trained_scores if update.tis_cap is None else engine_scores,
    )
    schedule = FixedTurns(batch.e_len)
    if batch.group_size:
        schedule = WholeEpisodes(batch.e_len, batch.group_size)
    bootstraps = at_time_limits if batch.use_proper_time_limits else at_faults
    options = dict(needs_bootstrap=bootstraps, make_batch=Batch)
    if update.no_critic:  # there is no V to ask
        made = ValuedBatch if update.continuations else CriticlessBatch
        options = dict(needs_bootstrap=never, make_batch=made)
    options["make_batch"] = partial(with_credit, options["make_batch"])
    return Collection(batch.n_env, schedule, scoring, **options)
