"""Which storage a command line asks for: the schedule of a batch, its layout, and its scoring."""

from functools import partial

from common.ranks import Ranks
from storage.batch import Scoring, trained_scores
from storage.collection import Collection, FixedTurns, at_faults, at_time_limits, never
from storage.engine_scores import engine_scores
from storage.merged import merged
from storage.minibatch import one_per_turn
from storage.schedules import WholeEpisodes

LAYOUTS = {  # --merge-turns
    "auto": merged,
    "on": partial(merged, worth=0.0),
    "off": one_per_turn,
}


def make_storage(args, ranks: Ranks) -> Collection:
    scoring = Scoring(
        token_budget=args.token_budget,
        ranks=ranks,
        layout=LAYOUTS[args.merge_turns],
        old_scores=trained_scores if args.tis_cap is None else engine_scores,
        critic=not args.no_critic,
    )
    schedule = FixedTurns(args.e_len)
    if args.group_size:
        schedule = WholeEpisodes(args.e_len, args.group_size)
    bootstraps = at_time_limits if args.use_proper_time_limits else at_faults
    if args.no_critic:  # there is no V to ask
        bootstraps = never
    return Collection(args.n_env, schedule, scoring, needs_bootstrap=bootstraps)
