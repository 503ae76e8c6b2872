"""GSM8K: word problems for a model that has a calculator and may check its answer.

The state of an episode is what the last checked answer was worth. `envs.tools.gsm8k_rows` gives the
rows.
"""

from envs.tools.arithmetic import evaluate
from envs.tools.gsm8k_rows import number_of, source
from envs.tools.tool_env import ToolEnv

NO_BETTER = 0.05  # what it costs to check an answer that is no better than the one before
SYSTEM = """\
You solve word problems whose answer is a number. Think step by step, and use the tool calculate \
for arithmetic. Check your answer with calc_gsm8k_reward before you give it: 1.0 means that it is \
right, and 0.0 that it is wrong. To check an answer that is no better than the one before costs a \
little. When you are done, reply without a call of a tool and end with a line of this form, in \
which 42 stands for your answer:
#### 42"""


class GSM8K(ToolEnv):
    """One problem per episode. A message without a call is the answer: 1 if it is right, else 0.

    data: file of rows; None: rows are made by reasoning-gym
    ValueError: see `envs.tools.gsm8k_rows.source`
    """

    family = "gsm8k"
    tasks = ()
    tools = ("calculate", "calc_gsm8k_reward")
    system = SYSTEM
    max_turns = 8
    source = staticmethod(source)  # where --data is checked before a run begins

    def __init__(
        self,
        max_episode_steps: int | None = None,
        format_penalty: float = 0.1,
        data: str | None = None,
    ):
        super().__init__(max_episode_steps, format_penalty)
        self.row = source(data)

    def question(self, seed: int) -> str:
        text, self.solution = self.row(seed)
        self.worth = 0.0  # of the answer before
        return text

    def reward(self, answer: str) -> float:
        return float(number_of(answer) == self.solution)

    def calculate(self, expression: str) -> str:
        """Calculate the value of an arithmetic expression.

        Args:
            expression: Numbers, + - * / // ** and parentheses, as in (3 + 4) * 2.5
        """
        return evaluate(expression)

    def calc_gsm8k_reward(self, answer: str) -> str:
        """Check an answer. The result is 1.0 if it is right and 0.0 if it is wrong.

        Args:
            answer: The number that answers the question
        """
        worth = self.reward(str(answer))
        if worth <= self.worth:
            self.pay(-NO_BETTER)
        self.worth = worth
        return str(worth)
