"""The project's own source files, parsed: what the rules are checked on."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("coharness", "actors", "clusters", "experiments")


@cache
def modules() -> dict[str, ast.Module]:
    """Path from the root, with slashes -> parsed module, for every Python file of the four packages."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "__pycache__" not in path.parts
    }


def under(path: str, *folders: str) -> bool:
    """Whether a module stands in one of these folders, or is one of these files."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Full name and line of every module that is imported below this node, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


def imports_at_load(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """As `imports`, for statements that run when the module is imported: not in functions, not under TYPE_CHECKING."""

    def visit(nodes: list[ast.stmt]) -> Iterator[tuple[str, int]]:
        for node in nodes:
            match node:
                case ast.Import() | ast.ImportFrom():
                    yield from imports(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    continue
                case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                    yield from visit(node.orelse)
                case _:
                    for name in ("body", "orelse", "finalbody"):
                        yield from visit(getattr(node, name, []))
                    for handler in getattr(node, "handlers", []):
                        yield from visit(handler.body)

    return visit(tree.body)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Dotted name and node of every call below this node whose function is a name or a chain of attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func), node


def is_of(module: str, *packages: str) -> bool:
    """Whether a module is one of these packages or inside one."""
    return module.partition(".")[0] in packages
