"""GSM8K: word problems for a model that has a calculator and may check its answer.

An episode's state is the score of the last checked answer. `envs.tools.gsm8k_rows` gives the rows.
"""

from envs.tools.arithmetic import evaluate
from envs.tools.gsm8k_rows import number_of, source
from envs.tools.tool_env import ToolEnv

RECHECK_COST = 0.05  # of checking an answer that is no better than the one before
SYSTEM = """\
You solve word problems whose answer is a number. Think step by step, and use the tool calculate \
for arithmetic. Check your answer with calc_gsm8k_reward before you give it: 1.0 means that it is \
right, and 0.0 that it is wrong. To check an answer that is no better than the one before costs a \
little. When you are done, reply without a call of a tool and end with a line of this form, in \
which 42 stands for your answer:
#### 42"""


class GSM8K(ToolEnv):
    """One problem per episode. A message without a call is the answer: 1 if it is right, else 0.

    data: a file of rows; None: reasoning-gym generates rows
    UserError: see `envs.tools.gsm8k_rows.source`
    """

    family = "gsm8k"
    tasks = ()
    tools = ("calculate", "calc_gsm8k_reward")
    system = SYSTEM
    max_turns = 8
    source = staticmethod(source)  # checks --data before a run begins

    def __init__(
        self,
        max_episode_steps: int | None = None,
        format_penalty: float = 0.1,
        data: str | None = None,
    ):
        super().__init__(max_episode_steps, format_penalty)
        self.row_of = source(data)

    def question(self, seed: int) -> str:
        text, self.solution = self.row_of(seed)
        self.last_score = 0.0  # of the last checked answer
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
        score = self.reward(str(answer))
        if score <= self.last_score:
            self.pay(-RECHECK_COST)
        self.last_score = score
        return str(score)
