"""A calculator for expressions that a model writes: numbers, + - * / // ** and parentheses.

Nothing is ever executed: a text without letters (except e, as in 1e3) is parsed into a tree, of
which only these operations are known.
Numbers are exact fractions of bounded size, so no expression takes long or much memory.
"""

import ast
import operator
import re
from decimal import Context
from fractions import Fraction

from common.plugins import UserError

LENGTH = 300  # characters of an expression
BITS = 2048  # of a number's numerator and denominator
STRANGE = re.compile(r"(?:(?<![0-9.])[eE]|[^0-9.eE()+*/\s-])[^0-9.()+*/\s-]*")
GROUPS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")  # commas as in 1,250,000
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
    """Return the value of an expression in decimal digits, twelve of them at most unless it is an
    integer. ValueError: there is none; the line is for the model"""
    text = GROUPS.sub("", expression.translate(SIGNS)).strip()
    if len(text) > LENGTH:
        raise UserError(f"the expression is longer than {LENGTH} characters")
    if strange := STRANGE.search(text):
        raise UserError(f"{strange[0]!r} is not arithmetic; {ALLOWED}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise UserError(f"this is no arithmetic expression; {ALLOWED}") from error
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
    raise UserError(f"this is no arithmetic expression; {ALLOWED}")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:  # a root, which is not exact
        if base < 0:
            raise UserError("a negative number has no such root")
        return _bounded(lambda: Fraction(float(base) ** float(exponent)))
    # an upper bound of the result's size, known before it is computed
    if _bits(base) * abs(exponent) > BITS and abs(base) != 1:
        raise UserError("the number is too large")
    return _bounded(lambda: base ** int(exponent))


def _bounded(compute) -> Fraction:
    try:
        number = compute()
    except ZeroDivisionError as error:
        raise UserError("division by zero") from error
    except (ValueError, OverflowError) as error:  # inf, or a float beyond its range
        raise UserError("the number is too large") from error
    if _bits(number) > BITS:
        raise UserError("the number is too large")
    return number


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())
