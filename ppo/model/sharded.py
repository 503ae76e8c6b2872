"""Models that are loaded in shards: no rank holds all fp32 weights at any time (ZeRO stage 3).

DeepSpeed leaves each rank its share of a parameter as soon as transformers has made it. Rank 0
reads the files, which stay on disk until a weight is used, and each rank gets its share of one
module after the other. Such a model computes only where its parameters are gathered: here for the
test of the model, later in the hooks of the training engine (`ppo.distributed`).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from transformers.integrations.deepspeed import HfDeepSpeedConfig

from ppo.distributed import frozen_config, import_deepspeed
from ppo.model.actor_critic import Reference
from ppo.model.reference import HostReference


@contextmanager
def loading_shards() -> Iterator[None]:
    """Inside, transformers loads models in shards. All ranks must load the same."""
    import_deepspeed()
    config = HfDeepSpeedConfig(frozen_config())  # transformers asks whether there is one
    yield
    del config


def is_sharded(p: nn.Parameter) -> bool:
    return hasattr(p, "ds_id")


@contextmanager
def computing_in_shards(lm, copied_layers: int) -> Iterator[None]:
    """Inside, a sharded model can compute: a module's parameters are gathered for its forward pass.

    The head, all vectors and the top layers, which a critic copies, are whole for the whole time.

    copied_layers: the number of these layers
    """
    layers = list(getattr(getattr(lm, "model", None), "layers", []))
    modules = [lm.get_output_embeddings(), *layers[max(0, len(layers) - copied_layers) :]]
    stay = [p for module in modules if module is not None for p in module.parameters()]
    stay += [p for p in lm.parameters() if is_sharded(p) and len(p.ds_shape) < 2]
    gathered = {}  # module -> its parameters that are gathered now

    def gather(module, inputs) -> None:
        absent = [p for p in module.parameters(recurse=False) if is_sharded(p) and not p.numel()]
        if absent:
            gathered[module] = absent
            absent[0].all_gather(param_list=absent)

    def release(module, inputs, output) -> None:
        if shared := gathered.pop(module, None):
            shared[0].partition(param_list=shared)

    with whole(dict.fromkeys(stay)):  # in the same order on all ranks, each once
        hooks = register_module_forward_pre_hook(gather), register_module_forward_hook(release)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for module in list(gathered):  # whose forward pass has failed
                release(module, None, None)


def whole(parameters: Iterable[nn.Parameter]):
    """Return a context in which parameters are whole, also those that are sharded."""
    return import_deepspeed().zero.GatheredParameters(list(parameters))


class GatheredCopies:
    """Mixed into a reference: it copies a sharded model, one parameter at a time."""

    def _copied(self, p: nn.Parameter) -> nn.Parameter:
        with whole([p]):
            return super()._copied(p)


class GatheredHostReference(GatheredCopies, HostReference):
    """A reference that rests, whole, in the host memory of each rank."""


class ShardedReference(GatheredCopies, Reference):
    """A reference of which each rank holds a share."""

    def _copied(self, p: nn.Parameter) -> nn.Parameter:
        copied = super()._copied(p)
        if is_sharded(p):
            p.convert_to_zero_parameters(param_list=[copied])
        return copied
