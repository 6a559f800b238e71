"""What the product's own source may not do: unpack, unpickle, take a secret as an argument, compare one in a way that
takes longer for a better guess, decide by a wall clock, or let text act as markup."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "mesh", "agentd", "console")
UNPACKERS = frozenset(("shutil.unpack_archive", "zipimport", "rarfile", "py7zr"))
ARCHIVES = ("tarfile.open", "tarfile.TarFile", "zipfile.ZipFile", "zipfile.PyZipFile", "zipfile.Path")
UNPICKLERS = frozenset(
    "pickle cPickle _pickle marshal shelve dill cloudpickle joblib torch torch.load numpy numpy.load pandas".split()
)
# Where a wall clock is read, and why that decides nothing between hosts.
WALL_CLOCKS = {
    "agentd/checkpoints/": "ages of saves by the clock that wrote them, for people",
    "agentd/debug_report.py": "says when it was made",
    "agentd/doctor/": "compares clocks, to tell people",
    "agentd/files/": "gives up unfinished uploads after a day, by the clock that wrote them",
    "agentd/gossip_file.py": "a number that only has to grow, with what was kept as its floor",
    "agentd/gpu/": "stamps of samples, which the driver gives by it",
    "agentd/http/": "stamps answers, ages request ids by the day, ends streams of tokens that ran out",
    "agentd/identity/": "certificates and join tokens end by the calendar",
    "agentd/key_book.py": "keys end by the calendar",
    "agentd/access_tokens.py": "tokens end by the calendar",
    "agentd/reporter.py": "how long ago an exit was, by the clock that stamped it: only which rank is named",
    "agentd/own_process.py": "says when it was started",
    "agentd/runtime/": "stamps of starts and ends, for people",
    "agentd/shim/": "stamps of starts and ends, for people",
    "agentd/task_host.py": "stamps reports, for people",
    "agentd/telemetry/": "ages of files by the clock that wrote them; stamps of alerts",
    "mesh/controllers.py": "preference of nodes that failed a claim; no deadline",
    "mesh/memory.py": "the twin for tests",
    "mesh/pruner.py": "how many days ago a group ended, by the leader's stamps",
    "mesh/security/": "certificates end by the calendar",
    "mesh/voter/": "stamps of commands, for people",
    "mesh/store/": "stamps of commands, for people",
    "console/": "ages on a screen",
}
CLOCK_CALLS = frozenset(
    "time.time time.time_ns datetime.now datetime.utcnow datetime.datetime.now datetime.datetime.utcnow".split()
)


@functools.cache
def sources() -> list[tuple[str, ast.Module]]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in paths]


def dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def uses(tree: ast.AST, names: frozenset[str]) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if {alias.name, alias.name.split(".")[0]} & names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found += sorted(({node.module, node.module.split(".")[0]} | full) & names)
        elif isinstance(node, ast.Attribute) and dotted(node) in names:
            found.append(dotted(node))
    return found


def read_archives(tree: ast.AST) -> list[str]:
    """Archives that are opened otherwise than to be written, and whatever is called extract."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("extract", "extractall", "extractfile"):
            found.append(ast.unparse(node))
        if dotted(node.func) in ARCHIVES:
            modes = [word.value for word in node.keywords if word.arg == "mode"] + node.args[1:2]
            said = modes[0].value if modes and isinstance(modes[0], ast.Constant) else "r"
            found += [] if str(said).startswith(("w", "x")) else [ast.unparse(node)]
    return found


def test_what_is_forbidden_would_be_found():
    for text in ("tarfile.open(a)", "tarfile.open(a, 'r:gz')", "zipfile.ZipFile(a, mode=m)", "x.extractall(d)"):
        assert read_archives(ast.parse(text)), text
    assert not read_archives(ast.parse("tarfile.open(fileobj=a, mode='w:gz')"))
    for text in ("from shutil import unpack_archive", "import zipimport", "shutil.unpack_archive(a)"):
        assert uses(ast.parse(text), UNPACKERS)
    for text in ("import pickle", "from torch import load", "import marshal", "from joblib import x"):
        assert uses(ast.parse(text), UNPICKLERS)
    assert uses(ast.parse("now = time.time()"), CLOCK_CALLS) and not uses(ast.parse("time.monotonic()"), CLOCK_CALLS)
    assert compared(ast.parse("if given == self._token: pass")) and compared(ast.parse("token != x"))
    assert not compared(ast.parse("kind == 'token'")) and not compared(ast.parse("token is None"))


@pytest.mark.attack(8)
def test_nothing_is_unpacked(attempts):
    for name, tree in sources():
        attempts["files"] += 1
        assert uses(tree, UNPACKERS) == [] and read_archives(tree) == [], name


@pytest.mark.attack(9, 45)
def test_nothing_is_unpickled(attempts):
    for name, tree in sources():
        attempts["files"] += 1
        assert uses(tree, UNPICKLERS) == [], name


@pytest.mark.attack(47)
def test_wall_clocks_are_read_where_they_decide_nothing(attempts):
    for name, tree in sources():
        attempts["files"] += 1
        if uses(tree, CLOCK_CALLS):
            said = any(name.startswith(place) for place in WALL_CLOCKS)
            assert said, f"{name} reads a wall clock: take a monotonic one, or say here why it decides nothing"


def compared(tree: ast.AST) -> list[str]:
    """Comparisons of something that is called a token, a secret or a digest with something else than a constant."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Constant) for side in sides):
            continue
        found += [ast.unparse(node) for side in sides if re.search(r"(^|[._])(secret|bearer)\b", dotted(side))]
        # `token` is also a place in the feed and the number of an order; a secret one is held by gates and callers.
        found += [ast.unparse(node) for side in sides if re.search(r"(^|\.)_?token$", dotted(side))]
    return found


@pytest.mark.attack(36)
def test_secrets_are_compared_in_the_same_time_whatever_was_guessed(attempts):
    gates = ("agentd/http", "agentd/identity", "agentd/join", "agentd/key_book", "agentd/access_tokens")
    digests = 0
    for name, tree in sources():
        if name.startswith((*gates, "mesh/transport", "mesh/security", "mesh/voter")):
            attempts["files"] += 1
            assert compared(tree) == [], name
            digests += len(uses(tree, frozenset(("hmac.compare_digest", "secrets.compare_digest"))))
    assert digests >= 2


@pytest.mark.attack(36)
def test_no_program_takes_a_secret_as_an_argument(attempts):
    for name, tree in sources():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and dotted(node.func).endswith("add_argument")):
                continue
            flags = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
            attempts["flags"] += 1
            for flag in flags:
                assert not re.fullmatch(r"--?(token|secret|password|api-key|key-secret|bearer)", flag), (name, flag)
    assert attempts["flags"] > 40


@pytest.mark.attack(49)
def test_no_widget_reads_foreign_text_as_markup(attempts):
    widgets = {"Static", "Label", "Button", "Checkbox", "RichLog", "Markdown", "MarkdownViewer", "OptionList"}
    for name, tree in sources():
        if not name.startswith("console/"):
            continue
        attempts["files"] += 1
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = dotted(node.func)
            assert not called.endswith(("from_markup", "markup.render")), name
            if called.rpartition(".")[2] in widgets:
                words = {word.arg: word.value for word in node.keywords}
                off = words.get("markup")
                assert isinstance(off, ast.Constant) and off.value is False, f"{name}: {ast.unparse(node)}"
            if called.endswith(".notify"):
                assert "markup" in {word.arg for word in node.keywords}, f"{name}: {ast.unparse(node)}"
