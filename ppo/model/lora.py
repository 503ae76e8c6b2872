"""LoRA (Hu et al. 2021): the actor's layers get small adapters, and their own weights freeze.

    W x + scale B A x,  A: (r, in), B: (out, r), B = 0 at the start, scale = 2

The base without adapters is the reference. The critic branch has none: it is trained whole.
Only this file imports peft.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from pathlib import Path
from warnings import catch_warnings, simplefilter

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from common.errors import RunError
from common.plugins import UserError
from ppo.model.actor import ActorOnly
from ppo.model.actor_critic import ActorCritic
from storage.minibatch import MicroBatch

NAME = "default"  # peft's name for the adapters


class Adapters:
    """Mixed into an actor-critic: the actor has adapters of this rank, its own weights are frozen.

    UserError: see `add_adapters`
    """

    def __init__(self, rank: int, lm, *args, **options):
        super().__init__(lm, *args, **options)
        # After the critic's copy of the layers, which it trains whole, without adapters.
        add_adapters(lm, rank, self.dtype)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the actor's weights by name, the adapters merged into them."""
        return merged_weights(self.lm, self.whole)

    def base_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the frozen weights by name, without the adapters."""
        for name, p in self.lm.named_parameters():
            if "lora_" not in name:
                with self.whole([p]):
                    yield name.replace(".base_layer", ""), p.detach()

    def adapters(self) -> dict[str, Tensor]:
        """Return the adapters' tensors in the host's memory, by peft's names."""
        return adapter_tensors(self.lm, self.whole)

    def export(self, folder: Path, keep: bool) -> None:
        """Write the merged actor as a Hugging Face model, and the adapters to folder/"adapter"."""
        super().export(folder, keep)
        export_adapter(self.lm, folder / "adapter", self.whole, keep)


class LoraActorCritic(Adapters, ActorCritic):
    """An actor-critic whose actor is trained by adapters."""


class LoraActor(Adapters, ActorOnly):
    """An actor without a critic that is trained by adapters."""


class AdaptersOff:
    """The reference of a LoRA run, without a copy: the actor with its adapters off."""

    awake = staticmethod(nullcontext)

    def __init__(self, actor_critic):
        self.actor_critic = actor_critic

    @torch.no_grad()
    def __call__(self, batch: MicroBatch) -> Tensor:
        """Return the log-probs of the response tokens, (R,)."""
        with adapters_off(self.actor_critic.lm):
            return self.actor_critic(batch, part="actor").logps


def add_adapters(lm, rank: int, dtype: torch.dtype) -> None:
    """Freeze the model, its matrices in `dtype`; its linear layers but the head get adapters.

    UserError: peft is missing, or no matrix has so high a rank
    """
    base = lm.name_or_path
    linear = {name: layer for name, layer in lm.named_modules() if isinstance(layer, nn.Linear)}
    largest = max((min(x.in_features, x.out_features) for x in linear.values()), default=rank)
    if rank > largest:
        raise UserError(f"--train lora:{rank} is above the rank of every matrix, {largest} at most")
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UserError(f"--train lora:{rank} needs peft ({error})") from error
    # Llama 4's routers are linear layers that return more than a product.
    routers = [name for name, x in linear.items() if type(x).forward is not nn.Linear.forward]
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        exclude_modules=routers or None,
        task_type="CAUSAL_LM",
        # so that peft finds the base of an exported adapter, from whatever directory
        base_model_name_or_path=str(Path(base).resolve()) if Path(base).is_dir() else base,
    )
    with catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # fused experts are parameters, no modules to peft
        inject_adapter_in_model(config, lm, NAME)
    # Matrices alone: norms and rotary tables must stay fp32, as `Reference` says.
    for name, p in lm.named_parameters():
        p.requires_grad_("lora_" in name)
        if p.dim() > 1 and not p.requires_grad:
            p.data = p.data.to(dtype)


@contextmanager
def adapters_off(lm):
    """`with adapters_off(lm):` the model computes what its base does."""
    layers = adapted(lm).values()
    for layer in layers:
        layer.enable_adapters(False)
    yield
    for layer in layers:
        layer.enable_adapters(True)


def adapted(lm) -> dict[str, nn.Module]:
    """Return the layers that have adapters, by name."""
    return {name: module for name, module in lm.named_modules() if hasattr(module, "lora_A")}


def target(layer: nn.Module) -> nn.Parameter:
    """Return the frozen parameter that an adapter is added to. Fused experts have two of them, with
    an adapter each."""
    return getattr(layer.get_base_layer(), getattr(layer, "parameter_name", "weight"))


def merged_weights(lm, whole: Callable) -> Iterator[tuple[str, Tensor]]:
    """Yield the plain model's parameters by name, one at a time, with the adapters added in.

    whole: `with whole(parameters):` gathers them where they are sharded
    RunError: an adapter belongs to none of them
    """
    layers = {target(layer): layer for layer in adapted(lm).values()}
    for name, p in lm.named_parameters():  # a tied lm_head comes once
        if "lora_" in name:
            continue
        layer = layers.pop(p, None)
        adapter = [] if layer is None else [layer.lora_A[NAME].weight, layer.lora_B[NAME].weight]
        with whole([p, *adapter]):
            weight = p.detach()
            if adapter:
                weight = (weight + layer.get_delta_weight(NAME).detach()).to(p.dtype)
            yield name.replace(".base_layer", ""), weight
    if layers:  # nothing is lost quietly; the trial of the export comes here before a run begins
        lost = ", ".join(type(layer).__name__ for layer in layers.values())
        raise RunError(f"{len(layers)} of peft's adapters cannot be merged ({lost:.60})")


def adapter_tensors(lm, whole: Callable) -> dict[str, Tensor]:
    """Return the adapters' tensors in the host's memory, by peft's names."""
    tensors = {}
    for name, p in lm.named_parameters():
        if "lora_" in name:
            with whole([p]):
                tensors[f"base_model.model.{name.replace(f'.{NAME}', '')}"] = p.detach().cpu()
    return tensors


def export_adapter(lm, folder: Path, whole: Callable, keep: bool) -> None:
    """Write a folder for PeftModel.from_pretrained, if `keep`. All ranks must call this."""
    tensors = adapter_tensors(lm, whole)
    if keep:
        folder.mkdir()
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        config = copy(lm.peft_config[NAME])
        config.target_modules = sorted(config.target_modules)  # a set, whose order would vary
        config.save_pretrained(folder)
