"""Literals and plain arithmetic, evaluated without running any code: the first rung of the ladder.

Read are constants, lists, tuples, sets, dicts, signs, `+ - * / // % **`, comparisons, `and`/`or`/`not`, subscripts, and calls of
a few pure built-ins by name. Everything is bounded before it is computed: the length of the text, the size of numbers, and
the length of what `*` repeats. What is outside raises `NotLiteral`; another layer may know it.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any

MAX_CHARS = 20_000
MAX_BITS = 4_096
MAX_LENGTH = 100_000
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "float": float, "int": int, "str": str, "bool": bool, "list": list, "tuple": tuple, "set": set,
    "frozenset": frozenset, "dict": dict, "abs": abs, "len": len, "round": round, "sorted": sorted,
}  # fmt: skip


class NotLiteral(ValueError):
    """The text is no bounded literal or arithmetic."""


def evaluate(text: str) -> Any:
    """The value of an expression.

    Raises:
        NotLiteral: it is something else, too large, or has no value (a division by zero).
    """
    if len(text) > MAX_CHARS:
        raise NotLiteral(f"longer than {MAX_CHARS} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotLiteral("no expression") from error
    return evaluate_node(tree.body)


def evaluate_node(node: ast.expr) -> Any:
    """The value of a parsed expression; as `evaluate`."""
    try:
        return _value(node)
    except NotLiteral:
        raise
    except (ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise NotLiteral(f"has no value: {type(error).__name__}") from error


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if value is None or type(value) in (bool, int, float, complex, str, bytes):
            return value
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Set(elts=items):
            return {_value(item) for item in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _combine(type(op), _value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_bounded(_value(argument)) for argument in arguments))
    raise NotLiteral(f"holds a {type(node).__name__}")


def _combine(kind: type[ast.operator], left: Any, right: Any) -> Any:
    if kind is ast.Mod and isinstance(left, str | bytes):
        # Formatting has widths, which are sizes in disguise.
        raise NotLiteral("formats a text")
    if kind is ast.Pow and isinstance(left, int) and isinstance(right, int):
        if abs(left).bit_length() * max(0, right) > MAX_BITS:
            raise NotLiteral(f"a number of more than {MAX_BITS} bits")
    elif kind is ast.Mult:
        for sequence, times in ((left, right), (right, left)):
            is_repeated = isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int)
            if is_repeated and len(sequence) * times > MAX_LENGTH:
                raise NotLiteral(f"longer than {MAX_LENGTH} elements")
    return _bounded(_BINARY[kind](_bounded(left), _bounded(right)))


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise NotLiteral(f"a number of more than {MAX_BITS} bits")
    if isinstance(value, str | bytes | list | tuple) and len(value) > MAX_LENGTH:
        raise NotLiteral(f"longer than {MAX_LENGTH} elements")
    return value
