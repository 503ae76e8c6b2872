"""The settings of a run that decide how much memory and time an update takes."""

from dataclasses import dataclass
from math import ceil, inf

FP32 = 4  # bytes of a number


@dataclass(frozen=True)
class Setting:
    """The settings of a run that an estimate needs. Most have the names of their flags."""

    critic_layers: int  # k
    token_budget: int  # n, padded tokens of a micro-batch
    prompt_limit: int
    response_limit: int
    n_env: int  # environments of this rank
    e_len: int = 0  # turns of each environment in a batch
    w_epoch: int = 0  # batches of the warm-up
    itemsize: int = FP32  # s: 2 for bfloat16
    gradient_checkpointing: bool = False
    ranks: int = 1
    zero_stage: int = 0
    offload_optimizer: bool = False
    reference: str = "device"  # or host, sharded
    lora_rank: int = 0  # 0: all parameters are trained
    top_layers: int = 0  # K, that are trained; 0: all
    known_room: float = inf  # bytes that known states may take
    no_critic: bool = False  # then k is 0
    ppo_epoch: int = 1
    tis_cap: float | None = None  # None: scoring computes log pi_old
    engine: str = "transformers"  # or vllm
    sharing: int = 1  # ranks that share one vLLM
    cuda: bool = False
    vllm_share: int = 0  # bytes that vLLM may take of a GPU
    merged: bool = False  # whether turns share rows, so that a row has many responses

    @property
    def length(self) -> int:
        return self.prompt_limit + self.response_limit

    def trained_layers(self, n_layers: int) -> int:
        """Return how many of the actor's layers keep what the backward pass needs."""
        return self.top_layers or n_layers

    @property
    def frozen_head(self) -> bool:
        """Whether embeddings and lm_head have no gradient."""
        return self.lora_rank + self.top_layers > 0

    def engine_weights(self, parameters: int) -> int:
        """Return the bytes of a model's weights that vLLM holds on each rank."""
        return ceil(self.itemsize * parameters / self.sharing)

    def on_host(self, term: str) -> bool:
        """Return whether a term is in host memory. False on a CPU, which has only one memory."""
        moved = {"optimizer": self.offload_optimizer, "reference": self.reference == "host"}
        return self.cuda and moved.get(term, term in ("batch: lists", "known states"))

    def shard(self, count: int, from_stage: int) -> int:
        """Return this rank's share of `count` numbers that ZeRO shards from `from_stage` on."""
        return ceil(count / self.ranks) if self.zero_stage >= from_stage else count
