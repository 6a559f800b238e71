"""Cores and schemas are pure: message in, effects out; clocks, randomness and files are arguments.

import-linter holds the import arrows; this reads the syntax trees for what an import rule cannot see.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "mesh", "agentd", "console")

IMPURE_MODULES = frozenset(
    "aiohttp aiosqlite apsw asyncio concurrent ctypes docker fcntl logging mmap multiprocessing pickle queue random "
    "secrets select selectors shutil signal socket sqlite3 ssl subprocess tempfile textual threading time uuid".split()
)
IMPURE_CALLS = frozenset(
    "open input print breakpoint hash id "
    "datetime.now datetime.utcnow datetime.today date.today datetime.datetime.now datetime.datetime.utcnow "
    "datetime.date.today os.getenv os.urandom os.getpid os.cpu_count os.listdir os.stat os.scandir os.walk".split()
)
IMPURE_NAMES = frozenset(("os.environ", "os.environb", "sys.argv", "sys.stdin", "sys.stdout", "sys.stderr"))
FILE_METHODS = frozenset("read_text write_text read_bytes write_bytes iterdir unlink mkdir rmdir".split())
UUIDS = frozenset(("uuid1", "uuid4"))

BANNED_EVERYWHERE_MODULES = frozenset(("pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"))
BANNED_EVERYWHERE_CALLS = frozenset(
    # asyncio.wait_for of Python 3.11 swallows a cancellation that comes with the answer: asyncio.timeout does not.
    "asyncio.wait_for eval exec compile __import__ os.system os.popen yaml.load yaml.unsafe_load yaml.full_load".split()
)

ORDER_FREE_CONSUMERS = frozenset("sorted set frozenset len sum min max any all bool".split())
ORDER_KEEPING_CONSUMERS = frozenset("list tuple iter enumerate zip map filter reversed dict".split())
SET_METHODS = frozenset("union intersection difference symmetric_difference".split())
SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)


def dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def imported_roots(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module.split(".")[0]]
    return []


def annotation_is_set(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("set", "frozenset", "Set", "AbstractSet")


class SetNames:
    """Names that hold a set in one scope, by annotation or assignment."""

    def __init__(self, scope: ast.AST) -> None:
        self.names: set[str] = set()
        for node in own_nodes(scope):
            if isinstance(node, ast.arg) and annotation_is_set(node.annotation):
                self.names.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and annotation_is_set(node.annotation):
                self.names.add(dotted(node.target))
            elif isinstance(node, ast.Assign) and self.is_set(node.value):
                self.names.update(dotted(target) for target in node.targets if dotted(target))

    def is_set(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call):
            if dotted(node.func) in ("set", "frozenset"):
                return True
            return (
                isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS and self.is_set(node.func.value)
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, SET_OPERATORS):
            return self.is_set(node.left) or self.is_set(node.right)
        return bool(dotted(node)) and dotted(node) in self.names


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a scope, without those of functions nested in it."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending.extend(ast.iter_child_nodes(node))


def scopes(tree: ast.Module) -> list[ast.AST]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [tree, *functions]


def order_faults(scope: ast.AST) -> Iterator[tuple[int, str]]:
    sets = SetNames(scope)
    nodes = list(own_nodes(scope))
    order_free = {
        id(argument)
        for call in nodes
        if isinstance(call, ast.Call) and dotted(call.func) in ORDER_FREE_CONSUMERS
        for argument in call.args
    }
    for node in nodes:
        if isinstance(node, ast.For) and sets.is_set(node.iter):
            yield node.lineno, "iterates over a set: the order differs between processes; use sorted()"
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and id(node) not in order_free:
            if any(sets.is_set(generator.iter) for generator in node.generators):
                yield node.lineno, "builds a sequence from a set: use sorted()"
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            ordered = name in ORDER_KEEPING_CONSUMERS or (
                isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "extend")
            )
            if ordered and id(node) not in order_free and any(sets.is_set(argument) for argument in node.args):
                yield node.lineno, f"{name or 'call'}() keeps a set's order: use sorted()"
            if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and sets.is_set(node.func.value):
                yield node.lineno, "set.pop() takes any element: use min() and discard()"
        elif isinstance(node, ast.Starred) and sets.is_set(node.value):
            yield node.lineno, "unpacks a set: use sorted()"


def core_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        for root in imported_roots(node):
            if root in IMPURE_MODULES:
                yield getattr(node, "lineno", 0), f"imports {root}"
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in IMPURE_CALLS or name.split(".")[-1] in UUIDS:
                yield node.lineno, f"calls {name}()"
            if isinstance(node.func, ast.Attribute) and node.func.attr in FILE_METHODS:
                yield node.lineno, f"touches the file system by .{node.func.attr}()"
        if isinstance(node, ast.Attribute) and dotted(node) in IMPURE_NAMES:
            yield node.lineno, f"reads {dotted(node)}"
    for scope in scopes(tree):
        yield from order_faults(scope)


def dangerous_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        for root in imported_roots(node):
            if root in BANNED_EVERYWHERE_MODULES:
                yield getattr(node, "lineno", 0), f"imports {root}, which runs code from its input"
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in BANNED_EVERYWHERE_CALLS:
                yield node.lineno, f"calls {name}()"
            if isinstance(node.func, ast.Attribute) and node.func.attr == "extractall":
                yield node.lineno, "extracts an archive without checking its members"
            for keyword in node.keywords:
                if keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
                    yield node.lineno, "passes text to a shell"


def is_core(path: Path) -> bool:
    inside = path.relative_to(ROOT).parts
    return inside[0] == "schemas" or (len(inside) > 2 and inside[1] == "core")


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def report(path: Path, faults: Iterator[tuple[int, str]]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{line}: {fault}" for line, fault in faults]


def test_cores_and_schemas_are_pure():
    cores = [path for path in sources() if is_core(path)]
    assert len(cores) > 10, "the walk found too few files to prove anything"
    faults = [line for path in cores for line in report(path, core_faults(ast.parse(path.read_text())))]
    assert faults == []


@pytest.mark.attack(9, 45)
def test_no_code_runs_foreign_code():
    files = [*sources(), *sorted((ROOT / "scripts").rglob("*.py"))]
    faults = [line for path in files for line in report(path, dangerous_faults(ast.parse(path.read_text())))]
    assert faults == []


@pytest.mark.parametrize(
    "snippet",
    [
        "import time",
        "from datetime import datetime\nx = datetime.now()",
        "import os\nx = os.environ['A']",
        "import os\nx = os.getenv('A')",
        "x = open('f')",
        "from pathlib import Path\nx = Path('f').read_text()",
        "import uuid as u\nx = u.uuid4()",
        "x = hash('a')",
        "for x in {1, 2}:\n    pass",
        "for x in set([1]):\n    pass",
        "def f(s: set[int]):\n    return [x for x in s]",
        "def f(s: frozenset[int]):\n    return list(s)",
        "def f():\n    s = {1} | {2}\n    return ','.join(s)",
        "def f():\n    s: set[int] = set()\n    return s.pop()",
        "def f(a: set[int], b):\n    return [*(a - b)]",
        "class A:\n    def f(self):\n        self.s = set()\n        return tuple(self.s)",
    ],
)
def test_impure_code_is_found(snippet: str):
    assert list(core_faults(ast.parse(snippet)))


@pytest.mark.parametrize(
    "snippet",
    [
        "for x in sorted({1, 2}):\n    pass",
        "def f(s: set[int]):\n    return any(x > 1 for x in s)",
        "def f(s: set[int]):\n    return {x + 1 for x in s}",
        "def f(s: set[int]):\n    return sorted(x for x in s), len(s), 3 in s",
        "def f(open_ids: list[int]):\n    return list(open_ids)",
        "d = {}\nfor x in d:\n    pass\nd.pop(1)",
        "def f(a: int, b: int):\n    return list(range(a | b))",
        "def f():\n    s = {1}\n\ndef g(s: list[int]):\n    return list(s)",
    ],
)
def test_pure_code_passes(snippet: str):
    assert list(core_faults(ast.parse(snippet))) == []


@pytest.mark.parametrize(
    "snippet",
    [
        "import pickle",
        "from marshal import loads",
        "eval('1')",
        "exec('1')",
        "import tarfile\ntarfile.open('f').extractall()",
        "import subprocess\nsubprocess.run('x', shell=True)",
        "import yaml\nyaml.load('x')",
    ],
)
def test_dangerous_code_is_found(snippet: str):
    assert list(dangerous_faults(ast.parse(snippet)))
