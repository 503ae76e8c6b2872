"""Checks at the door: a user's memory, and whether the first prompt can be written as it is meant.

Memories of ours and `memory.render` rely on them and check nothing by themselves.
"""

from common.chat import Chat
from common.cli import print_status
from common.plugins import UserError, check_call, defined_at, find
from common.template import check_template, is_message
from common.wrapper import Wrapper
from memory import MEMORIES
from memory.render import Renderer
from memory.spelled import SafeRenderer, imitable

METHODS = dict(reset=("self", "observation"), update=("self", "step"), messages=("self",))


def make_render(environment, prompt_limit: int, tokenizer, memories, resume=None) -> Renderer:
    """Return the Renderer. UserError: the limit or the chat template cannot work.

    environment: the flags of this part
    memories: at the first turns of their episodes; the messages of the first one must fit whole
    resume: the run that goes on, if one does. It is in the middle of its episodes, and was checked
        when it began
    """
    render = SafeRenderer(tokenizer, prompt_limit)
    if not resume:
        chat = Chat.of(memories[0].messages())
        # An agent's program decides by itself what it remembers of its thoughts.
        keeps = environment.history_thinking == "keep" and environment.memory != "verbatim"
        check_template(render.write, chat, thoughts=keeps)
        render(chat, whole=True)
        if how := imitable(render, chat.template):
            print_status(f"note: a text can imitate a message: the model's chat template {how}")
    return render


def make_users_memory(name: str, length: int) -> "UsersMemory":
    """Make the memory of a class "module:Class". UserError: it is not what a memory must be"""
    memory = find("memory", name, MEMORIES)
    if not all(callable(getattr(memory, method, None)) for method in METHODS):
        line = f"memory {name!r} must be a class with {', '.join(METHODS)}"
        raise UserError(f"{defined_at(memory)}{line}; choices: {', '.join(MEMORIES)}")
    check_call(memory, "length")
    for method, words in METHODS.items():
        check_call(getattr(memory, method), *words)
    return UsersMemory(memory(length))


class UsersMemory(Wrapper):
    """A user's memory, which may return plain lists of messages and need not know of faults."""

    def reset(self, observation) -> None:
        """Begin an episode."""
        self.observation = observation
        self.inner.reset(observation)

    def update(self, step) -> None:
        """Remember a turn. A failed environment has shown nothing new."""
        if not step.fault:
            self.observation = step.observation
            self.inner.update(step)

    def messages(self) -> Chat:
        """Return the prompt of the next turn, with the template and the sampling it needs."""
        messages, now = self.inner.messages(), self.observation
        if not (isinstance(messages, list) and messages and all(map(is_message, messages))):
            kind = type(self.inner)
            line = f"{kind.__name__}.messages returned {messages!r:.80}; it must return dicts"
            raise UserError(f"{defined_at(kind.messages)}{line} of two texts, role, content")
        chat = Chat.of(messages, now.template)
        chat.sampling = now.sampling
        return chat
