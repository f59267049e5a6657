"""Where Monty's Python differs from CPython's without saying so: code that may show such a difference is left to CPython.

In Monty what is lazy in CPython (generators, `map`, `zip`, ...) is a list at once, and a deque is a list. That changes no
computation that consumes it on the spot, but a function that returns `map(...)` would return a list, and pass where it
should not. So lazy things may only stand where they are consumed.
"""

import ast
from collections.abc import Iterator

MAX_CHARS = 32_000
_LAZY = frozenset({"map", "filter", "zip", "reversed", "enumerate"})
_CONSUMERS = frozenset(
    {"list", "tuple", "set", "frozenset", "dict", "sum", "any", "all", "min", "max", "sorted", "len"}
)
_LAZY_IN_CHAIN = _LAZY
"""A lazy thing may feed another, which itself must be consumed."""
_OTHER = frozenset(
    {"deque", "iter", "chain", "islice", "product", "permutations", "combinations", "accumulate", "groupby"}
)


def differs(code: str) -> str | None:
    """Why `code` must be left to CPython; None where Monty may try it."""
    if len(code) > MAX_CHARS:
        return f"longer than {MAX_CHARS} characters"
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"cannot be parsed: {type(error).__name__}"
    for parent, node in _edges(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name in _LAZY | _CONSUMERS:
                return f"binds {name}"
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name) if name in _LAZY | _CONSUMERS:
                return f"binds {name}"
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name in _OTHER:
                return f"uses {name}"
            case ast.Name(id=name) if name in _LAZY and not (isinstance(parent, ast.Call) and parent.func is node):
                return f"passes {name} on"
            case ast.GeneratorExp() if not _is_consumed(parent, node):
                return "keeps a generator"
            case ast.Call(func=ast.Name(id=name)) if name in _LAZY and not _is_consumed(parent, node):
                return f"keeps what {name} gives"
    return None


def _is_consumed(parent: ast.AST, node: ast.AST) -> bool:
    match parent:
        case ast.Call(func=ast.Name(id=name)):
            return name in _CONSUMERS | _LAZY_IN_CHAIN and node in parent.args
        case ast.Call(func=ast.Attribute(attr="join" | "extend" | "update")):
            return node in parent.args
        case ast.For() | ast.comprehension():
            return node is parent.iter
        case ast.Starred():
            return True
        case ast.Assign(targets=[ast.Tuple() | ast.List()]):
            return node is parent.value
    return False


def _edges(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(parent, child) of all nodes."""
    waiting = [tree]
    while waiting:
        parent = waiting.pop()
        for child in ast.iter_child_nodes(parent):
            yield parent, child
            waiting.append(child)
