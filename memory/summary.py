"""A history that the agent sums up by itself before it is forgotten."""

from memory.variants import FullMemory

ASK = """Before you go on, sum up: the turns above will not be shown again. Your summary replaces \
them, and the one before it. Please respond in the following format:
    THINK: step-by-step reasoning
    SUMMARY: all that you must still know"""


class SummaryMemory(FullMemory):
    """The turns since the last summary, which the system message shows.

    length: the turns after which the agent is asked for a summary; 0: only if the prompt would
        exceed its limit, which asks for one at any time

    The environment's wrapper asks, in an observation that ends with ASK, and the response is a turn
    of its own. Between two summaries each prompt begins with the prompt before and its response.
    """

    asks = "envs.asking.summaries:AsksForSummaries"

    def __init__(self, length: int):
        super().__init__(length)
        self.every = length

    def reset(self, observation) -> None:
        super().reset(observation)
        self.since = 0  # turns after the last summary

    @property
    def due(self) -> bool:
        """Whether so many turns have passed that they should be summed up."""
        return 0 < self.every <= self.since

    @property
    def asked(self) -> bool:
        """Whether the agent has to answer with a summary."""
        messages = self.observation.messages
        return (messages[-1]["content"] if messages else self.observation.text).endswith(ASK)

    def ask(self, observation) -> None:
        """Show an observation that asks for a summary in the place of the current one."""
        self.observation = observation

    def update(self, step) -> None:
        if self.asked and not step.fault:  # the Step of the summary itself
            self.turns.clear()
            self.since = 0
            self.observation = step.observation
            self.latest = [*self.latest[:1], *step.observation.messages]
        else:
            super().update(step)
            self.since += not step.fault
