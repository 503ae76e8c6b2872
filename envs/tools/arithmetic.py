"""A calculator for expressions that a model writes: numbers, + - * / // ** and parentheses.

It never executes the text. It parses an expression without letters (except e, as in 1e3) into a
tree and evaluates these operations alone. Numbers are exact fractions of bounded size, so no
expression takes long or much memory.

Errors are ValueErrors, whose text the model reads.
"""

import ast
import operator
import re
from decimal import Context
from fractions import Fraction

MAX_LENGTH = 300  # characters of an expression
MAX_BITS = 2048  # size of a number's numerator and denominator
NOT_ARITHMETIC = re.compile(r"(?:(?<![0-9.])[eE]|[^0-9.eE()+*/\s-])[^0-9.()+*/\s-]*")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")  # commas as in 1,250,000
SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "$": " "})
BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg}
ALLOWED = "write numbers, + - * / // ** and parentheses"


def evaluate(expression: str) -> str:
    """Return the value of an expression in decimal digits: all of an integer, else at most twelve.

    ValueError: the expression has no value, or one that is too large
    """
    text = THOUSANDS.sub("", expression.translate(SIGNS)).strip()
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the expression is longer than {MAX_LENGTH} characters")
    if match := NOT_ARITHMETIC.search(text):
        raise ValueError(f"{match[0]!r} is not arithmetic; {ALLOWED}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"this is no arithmetic expression; {ALLOWED}") from error
    return write(_value(tree.body))


def write(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    rounded = Context(prec=12).divide(number.numerator, number.denominator)
    return f"{rounded.normalize():f}"


def _value(node: ast.AST) -> Fraction:
    kind = type(node)
    if kind is ast.Constant and type(node.value) in (int, float):
        return _bounded(lambda: Fraction(str(node.value)))
    if kind is ast.UnaryOp and type(node.op) in UNARY:
        return UNARY[type(node.op)](_value(node.operand))
    if kind is ast.BinOp and type(node.op) is ast.Pow:
        return _power(_value(node.left), _value(node.right))
    if kind is ast.BinOp and type(node.op) in BINARY:
        left, right = _value(node.left), _value(node.right)
        return _bounded(lambda: Fraction(BINARY[type(node.op)](left, right)))
    raise ValueError(f"this is no arithmetic expression; {ALLOWED}")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:  # a root, which is not exact
        if base < 0:
            raise ValueError("a negative number has no such root")
        return _bounded(lambda: Fraction(float(base) ** float(exponent)))
    # This bounds the result's size before it is computed.
    if _bits(base) * abs(exponent) > MAX_BITS and abs(base) != 1:
        raise ValueError("the number is too large")
    return _bounded(lambda: base ** int(exponent))


def _bounded(compute) -> Fraction:
    try:
        number = compute()
    except ZeroDivisionError as error:
        raise ValueError("division by zero") from error
    except (ValueError, OverflowError) as error:  # inf, or a float beyond its range
        raise ValueError("the number is too large") from error
    if _bits(number) > MAX_BITS:
        raise ValueError("the number is too large")
    return number


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())
