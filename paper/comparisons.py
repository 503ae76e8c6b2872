"""The comparisons beyond the paper: advantage estimators, and parts of our method.

`compare` makes the runs, and `compared` writes the page.
"""

from paper.methods import GROUP_FLAGS, Comparison, Method, Task
from paper.rows import UNTRAINED_EPISODES

PICKUP_TASK = Task("babyai-pickup", 40, 40)
# Where episodes are long: batches of 512 turns, which cut them, or of 8 whole episodes
CUT = {"n_env": 32, "e_len": 16}
ONE_GROUP = GROUP_FLAGS | {"n_env": 8, "e_len": 64}
WHOLE = ONE_GROUP | {"group_size": 1, "w_epoch": 4}
DUAL = Method("dual-gae", "dual-discount GAE (ours)")
TOKEN_GAE = Method("token-gae", "GAE over tokens", {"advantages": "token-gae"})
# Far from the recipe, so that ratios leave their range
HARSH = {"ppo_epoch": 4, "minibatch": 32}


def clipped(name: str, label: str, clip: str) -> Method:
    return Method(name, label, HARSH | {"clip": clip}, factor=4.0)


COMPARISONS = {
    "estimators": Comparison(
        "What the critic is worth: estimators on the same turns",
        [
            PICKUP_TASK,
            Task("babyai-open", 40, 40),
            Task("baba-two_room-goto_win", 40, 20),
            Task("tools-calculator", 20, 80),
        ],
        [
            DUAL,
            TOKEN_GAE,
            Method("turn-gae", "GAE over turns", {"advantages": "turn-gae"}),
            Method("rloo", "RLOO", {"advantages": "rloo"} | GROUP_FLAGS, critic=False, groups=True),
            Method("grpo", "GRPO", {"advantages": "grpo"} | GROUP_FLAGS, critic=False, groups=True),
            Method("gigpo", "GiGPO", {"advantages": "gigpo"} | GROUP_FLAGS, critic=False,
                   groups=True),
            Method("vine", "VinePPO, K = 1", {"advantages": "vine:1"}, critic=False, factor=1.0),
        ],
        "RLOO, GRPO and GiGPO play groups of 8 whole episodes, with at least 256 turns per "
        "update. The other methods play 32 x 8 turns. Each method has its published settings "
        "([method.md](../method.md)); epochs, minibatches and models are equal. The actor's "
        "learning rate is tuned on babyai-pickup with other seeds, and the best factor is used on "
        "all tasks. VinePPO's is not tuned. Its turns are those it trains on and those of the "
        "continuations that value them, one from each state instead of the published nine.",
        factors=(0.5, 1.0, 2.0),
        against=("dual-gae",),
    ),
    "ablations": Comparison(
        "Parts of the method, one by one",
        [PICKUP_TASK],
        [
            DUAL,
            Method("layers-0", "critic: a head alone", {"critic_layers": 0}),
            Method("layers-2", "critic: two layers", {"critic_layers": 2}),
            Method("first-token-1", "first token weighs 1", {"first_token_weight": 1}),
            Method("no-warm-up", "no warm-up, twice the updates", {"w_epoch": 0}),
            Method("undiscounted", "gamma_step 1, lam_step 1", {"gamma_step": 1, "lam_step": 1}),
            Method("episodes", "whole episodes", {"group_size": 1},
                   groups=True),
        ],
        "The first row is the unchanged method: one critic layer, weight 3 on first tokens, a "
        "warm-up of 40 batches, gamma_step .99 and lam_step .95, batches of 32 x 8 turns. Each "
        "other row changes one setting.",
        against=("dual-gae",),
    ),
    "long-episodes": Comparison(
        "What the critic is worth over hundreds of turns",
        [
            Task("crafter", 10, 50, batch=512, episodes=UNTRAINED_EPISODES),
            Task("babyai-open", 10, 50, batch=512),
        ],
        [
            Method("dual-gae", "dual-discount GAE (ours)", CUT, factor=1.0),
            Method("turn-gae", "GAE over turns", {"advantages": "turn-gae"} | CUT, factor=1.0),
            Method("token-gae", "GAE over tokens", {"advantages": "token-gae"} | CUT, factor=0.5),
            Method("dual-gae-whole", "ours, whole episodes", WHOLE, groups=True, factor=1.0),
            Method("turn-gae-whole", "GAE over turns, whole episodes",
                   {"advantages": "turn-gae"} | WHOLE, groups=True, factor=1.0),
            Method("grpo", "GRPO", {"advantages": "grpo"} | ONE_GROUP, critic=False, groups=True,
                   factor=1.0),
            Method("gigpo", "GiGPO", {"advantages": "gigpo"} | ONE_GROUP, critic=False,
                   groups=True, factor=0.5),
        ],
        "An episode takes about two hundred turns in Crafter, and at first 109 of at most 128 in "
        "babyai-open. The first three methods train on 32 x 16 turns per update and cut episodes "
        "there. The others play 8 whole episodes per update, GRPO and GiGPO as one group: so "
        "critics and groups are compared on the same batches. Each method has its published "
        "settings ([method.md](../method.md)); epochs, minibatches, the number of turns, the "
        "model and a constant learning rate are equal. The critics' warm-up has 10 batches of "
        "cut turns or 4 of whole episodes. The actor's learning rate is the family's, times .5 "
        "for GAE over tokens and GiGPO: so a search with seed 101 in Crafter chose from .5, 1 and "
        "2 for our estimator, GAE over tokens, GRPO and GiGPO.",
        against=("dual-gae", "dual-gae-whole"),
    ),
    "trust-regions": Comparison(
        "Trust regions: ratios of tokens, turns and episodes",
        [
            Task("babyai-pickup", 10, 20),
            Task("babyai-open", 10, 20),
            Task("baba-two_room-goto_win", 10, 20),
            Task("crafter", 5, 20, batch=512, episodes=UNTRAINED_EPISODES),
        ],
        [
            clipped("token", "tokens, 0.2 (the paper's)", "0.2"),
            clipped("token-0.05", "tokens, 0.05", "0.05"),
            clipped("turn", "turns, turn:0.02", "turn:0.02"),
            clipped("episode", "episodes, episode:0.02", "episode:0.02"),
        ],
        "With the recipes of the embedded models hardly a ratio leaves its range (.002 to .004 "
        "of the tokens), so no trust region is needed there. Here an update makes 8 times as many "
        "optimizer steps on the same turns, in Crafter 4 times (4 epochs, minibatches of 32), at "
        "four times the recipe's learning rate: what a user does who wants more of each turn. All "
        "rows have the dual-discount GAE. The clip range behind each kind of ratio comes from a "
        "trial on babyai-pickup with another model and seed 101 (tokens .05 and .2, turns .005, "
        ".02 and .05, episodes .005 and .02). Without clipping success fell from .5 to 0 there.",
        against=("token",),
    ),
    "memories": Comparison(
        "Memories: what each lets a policy learn, and what it costs",
        [
            Task(env, 0, 6, episodes=UNTRAINED_EPISODES)
            for env in ("errands-6", "errands-12", "errands-20")
        ],
        [
            *(Method(f"window-{n}", f"window {n}", {"memory": "window", "memory_length": n})
              for n in (1, 4, 8)),
            Method("full", "full", {"memory": "full"}),
            *(Method(f"{name}-{n}", f"{name} {n}", {"memory": name, "memory_length": n})
              for name, n in (("action", 8), ("periodic", 8), ("notes", 1), ("summary", 8))),
        ],
        "The list of errands is told once, in the first observation ([environments]"
        "(../environments.md#environments-that-need-a-memory)). All memories begin with one clone "
        "of a scripted player, whose demonstrations take the eight memories in turn, so none is "
        "new to it. The player acts well on what its prompt says, except that half of its answers "
        "at doors are any word: every memory has this to learn. Half of its notes and summaries "
        "begin without the list, and 3 % of later notes lose its last errand. Runs differ in "
        "nothing but the memory. Each plays 6 updates of 32 x 8 turns, without a warm-up of the "
        "critic: in a trial with notes it explained nothing of the held-out returns.",
        memories=True,
        against=("window-8",),
    ),
}  # fmt: skip
