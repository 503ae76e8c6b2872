"""The agent's own notes, which it rewrites in each turn, beside the last n turns."""

from memory.window import WindowMemory


class NotesMemory(WindowMemory):
    """The last n turns. The environment's wrapper asks for the notes and shows them.

    limit: tokens that notes may have; a subclass may have another
    """

    asks = "envs.asking.notes:AsksForNotes"
    limit = 128
