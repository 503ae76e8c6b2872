"""What `turnwise doctor` computes on the device, with the smallest embedded model.

The checks of a `Device` follow one another: a later one uses what an earlier one has made.
"""

from argparse import Namespace
from importlib.util import find_spec

import torch

from common.engine_flag import check_sharing, is_own, parted
from common.plugins import ROOT
from ppo.engines.choose import make_engine
from ppo.engines.gap import explained_gap
from ppo.model.layers import is_packed
from ppo.model.make import choose_dtype, choose_packing
from ppo.model.pretrained import load_lm
from ppo.optimizer import Stepper
from run.doctor.finding import Finding, failed, judged, passed, skipped
from run.doctor.rows import agree, differentiate, distance, make_model, make_turns

MODEL = ROOT / "models" / "tiny"
TURNS, PROMPT, RESPONSE, SLOTS = 4, 96, 24, 4
LR = 1e-3


class Device:
    """The device of this rank, with a small model on it. args: the flags of the run"""

    def __init__(self, args):
        self.args, self.engine = args, None

    def begin(self, ranks) -> Finding:
        """Load the model onto the device of these ranks."""
        self.ranks, self.device = ranks, ranks.device
        self.dtype = choose_dtype(self.args.dtype, self.device)
        self.lm, self.tokenizer, self.ends = load_lm(str(MODEL), self.device)
        self.turns = make_turns(self.lm.config.vocab_size, self.device, TURNS, PROMPT, RESPONSE)
        return passed(f"{self.device} of {ranks.size} ranks" if ranks.size > 1 else self.device)

    # ---- training ---------------------------------------------------------------------------

    def packed(self) -> Finding:
        """Compare gradients of packed rows with those of padded rows, both with exact ones."""
        cuda = self.device.startswith("cuda")
        if cuda and not choose_packing("auto", self.device, self.dtype):
            return skipped("--dtype float32 pads on a GPU")
        exact = differentiate(make_model(self.lm, torch.float32, packed=False), self.turns)
        padded = differentiate(make_model(self.lm, self.dtype, packed=False), self.turns)
        model = make_model(self.lm, self.dtype, packed=True)
        if not is_packed(model.compute):  # a run would say so and pad
            return failed("the test of the model refuses them", "--rows padded")
        packed = differentiate(model, self.turns)
        worst, agreed = 0.0, True
        for name in exact:
            far = distance(packed[name], exact[name])
            agreed = agreed and agree(distance(padded[name], exact[name]), far)
            worst = max(worst, far)
        how = f"{self.dtype}".removeprefix("torch.")
        return judged(agreed, f"{worst:.1e} from fp32 at most, in {how}", "--rows padded")

    def step(self) -> Finding:
        """Make one optimizer step, as `Agent` does, and compare it with AdamW's formula."""
        self.model = make_model(self.lm, self.dtype, packed=False)
        optimizer = torch.optim.AdamW(
            self.model.actor_parameters(), lr=LR, weight_decay=0.0, fused=self.turns.ids.is_cuda
        )
        p = self.lm.model.layers[0].mlp.up_proj.weight
        differentiate(self.model, self.turns)
        gradient = p.grad.double()
        # In the first step both averages are the gradient itself: p - lr g / (|g| + eps).
        wanted = p.detach().double() - LR * gradient / (gradient.abs() + 1e-8)
        _, finite = Stepper(self.model, optimizer, max_grad_norm=float("inf")).step(loss=0.0)
        gap = (p.detach().double() - wanted).abs().max().item()
        kind = "fused AdamW" if self.turns.ids.is_cuda else "AdamW"
        remedy = "another GPU, or install torch again; no flag avoids this step"
        return judged(finite and gap < LR / 100, f"{kind}, {gap:.0e} from its formula", remedy)

    # ---- generation -------------------------------------------------------------------------

    def start(self) -> Finding:
        name, ranks = parted(self.args.engine)
        if is_own(name):
            return skipped(f"--engine {name} is your own")
        check_sharing(self.args.engine, self.ranks.size)
        shared = "vllm:2" if ranks % 2 == 0 else "vllm"  # the model has two heads
        flags = Namespace(
            engine="transformers" if name == "transformers" or not find_spec("vllm") else shared,
            model=str(MODEL),
            prompt_limit=PROMPT,
            response_limit=RESPONSE,
            temperature=1.0,
            gpu_memory_utilization=self.args.gpu_memory_utilization,
            endpoint_sampling="refuse",
        )
        self.lm.config._attn_implementation = "sdpa"
        self.engine = make_engine(flags, self.tokenizer, self.ends, SLOTS, self.dtype, seed=0)
        return passed(f"{flags.engine}{self._free()}")

    def push(self) -> Finding:
        """Hand over the weights; the engine's log-probs are compared with the trainer's."""
        return self._push()

    def sleep(self) -> Finding:
        if self.engine is None:
            return skipped("there is no engine")
        self.engine.sleep()
        return passed(f"asleep{self._free()}")

    def wake(self) -> Finding:
        """Hand over other weights than the first ones."""
        with torch.no_grad():
            for p in self.model.actor_parameters():
                p.mul_(1.01)
        return self._push()

    def _push(self) -> Finding:
        if self.engine is None:
            return skipped("there is no engine")
        engine, self.engine = self.engine, None  # after a failure it cannot be asked again
        engine.push_weights(self.model)  # RunError: a gap that rounding does not explain
        self.engine = engine
        return passed(f"{self._gap()}{self._free()}")

    def _gap(self) -> str:
        gap = getattr(self.engine, "push_gap", None)
        if gap is None:
            return "the trainer's own weights"
        bound = explained_gap(str(self.dtype).removeprefix("torch."), 1.0, random_ids=True)
        return f"log-probs differ by {gap:.1e} (rounding explains {bound:g})"

    def _free(self) -> str:
        if not self.device.startswith("cuda"):
            return ""
        return f", {torch.cuda.mem_get_info()[0] / 1e9:.1f} GB of the GPU free"

    # ---- ranks ------------------------------------------------------------------------------

    def together(self) -> Finding:
        """Add up a tensor and gather objects over the ranks."""
        size = self.ranks.size
        if size == 1:
            return skipped("one rank; torchrun --nproc-per-node N -m doctor tries N")
        total = self.ranks.sum(torch.ones(1000, device=self.device)).sum().item()
        names = self.ranks.gather([f"rank {self.ranks.rank}"])
        right = total == 1000 * size and names == [f"rank {k}" for k in range(size)]
        remedy = "NCCL_DEBUG=INFO says why; NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 avoid a path"
        return judged(right, f"{size} ranks add up and gather", remedy)
