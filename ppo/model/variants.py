"""Models that are plain decoders but for a name or a factor: LFM2, Granite and Cohere.

Their parts are made to compute as those of other decoders do, for the trainer and for the model's
own forward pass alike. The config and the weights stay as they are, and so do exports. Whether
that was all is for `ppo.model.acceptance` to find out.
"""

from dataclasses import dataclass, replace

from ppo.model.actor_critic import ActorCritic
from ppo.model.decoder import Compute

OTHER_NAMES = {"norm": "embedding_norm", "rotary_emb": "pos_emb"}  # LFM2's and its mixture's


@dataclass(frozen=True)
class Scale:
    """A hook that multiplies what a module returns, or the logits of what a model returns."""

    factor: float

    def __call__(self, module, inputs, output):
        if hasattr(output, "logits"):
            output.logits = self.factor * output.logits
            return output
        return self.factor * output


def make_plain(lm) -> None:
    """Let the embeddings, the last norm and the head of a model be all that is around its layers.

    A model that is plain, or that this function has made plain before, stays as it is.
    """
    body = getattr(lm, "model", None)
    for name, other in OTHER_NAMES.items():
        if not hasattr(body, name) and hasattr(body, other):
            # An attribute that is no module of its own: exports have each weight once.
            object.__setattr__(body, name, getattr(body, other))
    if not hasattr(body, "norm"):
        return
    if (factor := getattr(body, "embedding_multiplier", 1.0)) != 1.0:  # Granite
        body.embed_tokens.register_forward_hook(Scale(factor))
        body.embedding_multiplier = 1.0
    if (factor := getattr(lm, "logit_scale", 1.0)) != 1.0:  # Cohere
        body.norm.register_forward_hook(Scale(factor))
        lm.logit_scale = 1.0
    factor = getattr(lm.config, "logits_scaling", 1.0)
    if factor != 1.0 and not scale_hooks(body.norm):  # Granite
        body.norm.register_forward_hook(Scale(1 / factor))
        lm.register_forward_hook(Scale(factor))  # its forward pass divides once more


def scale_hooks(module) -> list[int]:
    """Return the keys of the hooks by which `make_plain` scales what a module returns."""
    hooks = module._forward_hooks
    return [key for key, hook in hooks.items() if isinstance(hook, Scale)]


def unscale_critic(actor_critic: ActorCritic) -> None:
    """Let a critic read features of the usual size: the factor of the last norm is the logits'."""
    for key in scale_hooks(actor_critic.branch_norm):
        del actor_critic.branch_norm._forward_hooks[key]


def with_whole_layers(lm, compute: Compute) -> Compute:
    """Return `compute` with layers that are always run as they are: the names of their parts may be
    those of a plain layer although they do more, such as scaling what they add (Granite)."""
    from ppo.model.layers import OwnOptions

    return replace(compute, activations=OwnOptions(compute.activations, ()))


def beyond(config) -> str | None:
    """Return what a model does that the trainer has no place for, if it is known."""
    found = [
        (getattr(config, "num_kv_shared_layers", 0), "its layers share keys and values"),
        (getattr(config, "hidden_size_per_layer_input", 0), "its layers have inputs of their own"),
        (getattr(config, "final_logit_softcapping", None), "it caps its logits"),
    ]
    return ", ".join(reason for value, reason in found if value) or None
