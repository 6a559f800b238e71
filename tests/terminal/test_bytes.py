"""Hostile text reaches no terminal state: the bytes of a real session, looked at one by one."""

import re
import signal
from pathlib import Path

import pytest

from tests.snapshots.canned_mesh import NOW_MS, TOKEN, S, event_row, gid, group_now, group_row, node_row
from tests.snapshots.example_mesh import HOSTILE, example_mesh
from tests.terminal.pty_console import pty_console
from tests.terminal.served_mesh import served_mesh

pytestmark = pytest.mark.slow

NASTY = (
    "MARK\x1b]52;c;cm0gLXJm\x07\x1b]0;owned\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\\x1b[2J\x1b[999;1H\x1bP$q\x22p\x1b\\"
    "\x1b_apc\x1b\\\x1b^pm\x1b\\\x9b2J\x9d52;c;aGk=\x9c\x90q\x9c\x1bc\x1b[?1000h\x1b[21t\r\b\a\x0e\u202eRTL\u2066[@click=app.quit]x[/]\x1b]52;c;half"
)
# What the console itself may send: colours, cursor moves, modes, erasing, queries. Everything else is foreign.
NORMAL = {7, 25}  # a line wraps, the cursor is seen
OWN = re.compile(
    rb"\x1b\[[0-9;:]*m|\x1b\[[0-9;]*H|\x1b\[\?[0-9;]+[hl]|\x1b\[\?[0-9;]+\$p|\x1b\[[0-9]*[JK]|\x1b\[[<>=]?[0-9;]*u"
    rb"|\x1b\]22;[a-z]*\x07|\x1b\[[0-9]+ q|\x1b\[c|\x1b\[6n|\x1b\[[0-9;]*r|\x1b\[>[0-9;]*m"
)


def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


def hostile_mesh():
    mesh = example_mesh()
    row = group_row(
        HOSTILE,
        NASTY,
        "failed",
        1,
        8,
        user=NASTY,
        tenant=NASTY,
        nodes=["gpu-24"],
        ended_ms=NOW_MS - S,
        attempt=1,
        created_ms=NOW_MS,
        started_ms=NOW_MS - 9 * S,
    )
    row["document"]["name"] = NASTY
    row["document"]["training"]["hyper_params"] = {"lr": NASTY}
    row["document"]["task"]["command"] = [NASTY]
    row["failure"] = {"class": NASTY, "rank": 0, "exit_code": 1, "signal": None, "text": NASTY, "at_ms": NOW_MS}
    row["warnings"] = [{"code": "x", "path": NASTY, "message": NASTY, "hint": NASTY}]
    mesh.rows += [("group", gid(HOSTILE), row), event_row(HOSTILE, 1, NOW_MS, NASTY, NASTY, rank=0, node=NASTY)]
    waiting = group_row(
        30, NASTY, "pending", 1, 8, pending_reason={"code": NASTY, "text": NASTY, "details": {NASTY: NASTY}}
    )
    mesh.rows.append(("group", gid(30), waiting))
    mesh.rows.append(("node", "zz", node_row(NASTY, kind=NASTY, state="lost", reason=NASTY, lost_ms=NOW_MS)))
    mesh.logs[gid(HOSTILE)] = [
        {"rank": 0, "attempt": 1, "offset": at, "at": NASTY, "stream": "out", "text": NASTY + "x" * at}
        for at in (1, 2, 1_000_000)
    ]
    mesh.curves[gid(HOSTILE)] = {"state": NASTY, "text": NASTY, "tags": {NASTY: [[0, 0, 1.0], [1, 0, NASTY]]}}
    mesh.status["consensus"]["alarm"] = NASTY
    mesh.telemetry = {"groups": [group_now(HOSTILE, 1, 1, NASTY, 1.0, stall="stalled", stall_text=NASTY)], "nodes": []}
    mesh.alerts = [{"group_id": NASTY, "level": NASTY, "rule": NASTY, "text": NASTY, "advice": NASTY}]
    mesh.status["cluster_id"] = NASTY
    return mesh


@pytest.mark.attack(48)
def test_hostile_text_reaches_no_terminal_state(tmp_path):
    with (
        served_mesh(hostile_mesh()) as mesh,
        pty_console(mesh.address, token_file(tmp_path), size=(140, 45)) as console,
    ):
        console.until("MARK")
        for keys in ("d", "l", "t", "m", "\x1b", "2", "3", "4", "5", "1", "s", "n"):
            since = len(console.sent)
            console.press(keys)
            console.read(0.8)
            assert console.process.poll() is None, f"{keys!r} ended the console"
            assert len(console.sent) > since or keys in ("s", "n"), keys
        # A complete sequence goes with its payload, except in the editor, which spells it out in plain letters.
        assert b"cm0gLXJm" not in console.sent and b"owned" not in console.sent
        console.press("c")
        console.until(r"MARK\u001b]52;c;")
        console.press("\x1b")
        console.read(0.5)
        console.press("\x03")
        console.ended()
        rest = OWN.sub(b"", console.sent)
        assert b"\x1b" not in rest, rest[rest.index(b"\x1b") - 50 :][:120]
        text = rest.decode()
        left = {item for item in text if not item.isprintable() and item not in "\r\n"}
        assert left <= {"\x07"} and text.count("\x07") <= 2, left  # the console's own bell
        assert not any(item in text for item in "\u202e\u2066\x9b\x9d\x90")


@pytest.mark.parametrize(
    ("end", "code"), [("q", 0), ("\x03", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_the_terminal_is_left_as_it_was(tmp_path, end, code):
    with served_mesh(example_mesh()) as mesh, pty_console(mesh.address, token_file(tmp_path)) as console:
        console.until("rm-sweep")
        assert not console.is_cooked() and 1049 in console.modes_left_on()
        if isinstance(end, str):
            console.press(end)
        else:
            console.process.send_signal(end)
        assert console.ended() == code
        assert console.is_cooked()
        assert console.modes_left_on() <= NORMAL


def test_a_terminal_that_goes_away_without_a_signal_takes_the_console_along(tmp_path):
    with served_mesh(example_mesh()) as mesh, pty_console(mesh.address, token_file(tmp_path)) as console:
        console.until("rm-sweep")
        console.hang_up()
        assert console.process.wait(15) == 129


def test_a_defect_leaves_the_terminal_well_and_the_traceback_in_a_file(tmp_path):
    mesh = example_mesh()
    # A shape that no agent sends: the console must end like any program with a defect.
    mesh.status = {"consensus": {"voters": [1]}}
    with served_mesh(mesh) as serving, pty_console(serving.address, token_file(tmp_path)) as console:
        assert console.ended() == 70
        assert console.is_cooked() and console.modes_left_on() <= NORMAL
        assert b"console-crash.log" in console.sent and b"Traceback" not in console.sent
        assert "Traceback" in (tmp_path / ".local/state/heteroflow/console-crash.log").read_text()


def test_a_terminal_of_any_size_at_any_time(tmp_path):
    with served_mesh(example_mesh()) as mesh, pty_console(mesh.address, token_file(tmp_path), size=(10, 3)) as console:
        for columns, rows in ((80, 24), (1, 1), (300, 90), (20, 5)):
            console.resize(columns, rows)
            console.read(0.3)
        console.resize(120, 40)
        console.until("rm-sweep")
        console.press("q")
        assert console.ended() == 0


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "xterm", "COLORTERM": ""}, {"TERM": "linux", "COLORTERM": ""}]
)
def test_few_colours_or_none(tmp_path, environment):
    options = ("--theme", "ansi") if environment.get("TERM") == "linux" else ()
    with (
        served_mesh(example_mesh()) as mesh,
        pty_console(mesh.address, token_file(tmp_path), *options, environment=environment) as console,
    ):
        console.until("F failed")
        console.press("q")
        assert console.ended() == 0


def test_what_has_no_terminal_gets_a_sentence(tmp_path):
    with (
        served_mesh(example_mesh()) as mesh,
        pty_console(mesh.address, token_file(tmp_path), environment={"TERM": "dumb"}) as console,
    ):
        assert console.ended() == 2
        assert b"cannot paint on TERM=dumb" in console.sent and b"\x1b" not in console.sent
