"""`heteroflow` as a process: quick to start, quiet when its reader leaves, gone on Ctrl-C, and safe on a terminal."""

import asyncio
import json
import os
import pty
import signal
import sys
from pathlib import Path

import pytest

from tests.unit.console.fault_mesh import GROUP, TOKEN, nodes
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
HOSTILE = "\x1b]2;HACKED\x07\x1b[8m hidden\x1b[1;31mred \r\x1b[2KStatus: completed \x9b2J \u202e ◈ fake"


def environment(*some, **more):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    addresses = {"HETEROFLOW_NODES": ",".join(node.address for node in some)} if some else {}
    return (
        kept
        | {"PYTHONPATH": str(ROOT), "HETEROFLOW_TOKEN": TOKEN, "PYTHONUTF8": "1", "TERM": "xterm"}
        | addresses
        | more
    )


async def started(*words, env, stdout=asyncio.subprocess.PIPE):
    command = (sys.executable, "-m", "console.cli.main", *words)
    return await asyncio.create_subprocess_exec(*command, env=env, stdout=stdout, stderr=asyncio.subprocess.PIPE)


async def finished(*words, env):
    process = await started(*words, env=env)
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    return process.returncode, out, err


@pytest.mark.parametrize(
    "words", [("--help",), ("submit", "--help"), ("version",), (), ("nope",), ("ls", "--limit", "x")]
)
async def test_help_and_usage_errors_load_no_network_code(words):
    probe = (
        "import sys; from console.cli.main import main; main(sys.argv[1:]); print(sorted(sys.modules), file=sys.stderr)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        probe,
        *words,
        env=environment(),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    for module in (b"'aiohttp'", b"'ruamel'", b"'msgpack'", b"'pydantic'"):
        assert module not in err


async def test_exit_codes_of_usage():
    assert (await finished("--help", env=environment()))[0] == 0
    for words in ((), ("nope",), ("ls", "--limit", "0"), ("ls", "-o", "xml"), ("show",)):
        code, out, err = await finished(*words, env=environment())
        assert (code, out) == (2, b"")
        assert b"usage:" in err


@pytest.mark.attack(36)
async def test_nothing_secret_can_be_given_as_an_argument():
    _, out, _ = await finished("--help", env=environment())
    assert b"--token " not in out


async def test_a_reader_that_leaves_ends_it_quietly():
    async with nodes(1) as (only,):
        only.state.add_lines(50_000)
        process = await started("logs", GROUP, env=environment(only))
        assert process.stdout is not None
        await process.stdout.read(100)
        process.stdout._transport.close()  # type: ignore[attr-defined]  # nothing public closes it
        async with asyncio.timeout(30):
            assert process.stderr is not None
            err = await process.stderr.read()
            code = await process.wait()
        assert (code, err) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
async def test_a_full_disk_is_told_without_a_traceback():
    with open("/dev/full", "wb") as full:
        process = await started("template", "ls", env=environment(), stdout=full)
        async with asyncio.timeout(30):
            _, err = await process.communicate()
    assert (process.returncode, err) == (74, b"heteroflow: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
async def test_standard_streams_that_are_closed(closed):
    command = f'exec "$0" -m console.cli.main version {closed}'
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", command, sys.executable, env=environment(), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


async def test_ctrl_c_ends_a_follow_without_a_traceback():
    async with nodes(1) as (only,):
        only.state.add_lines(3)
        process = await started("logs", "-f", GROUP, env=environment(only))
        assert process.stdout is not None
        async with asyncio.timeout(30):
            while b"line 30" not in await process.stdout.readline():
                pass
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
        assert process.returncode == 130
        assert b"Traceback" not in err


async def test_ctrl_c_of_a_wait_says_that_the_group_goes_on(tmp_path):
    job = tmp_path / "job.json"
    job.write_text('{"name": "g"}')
    async with nodes(1) as (only,):
        process = await started("submit", str(job), "--wait", env=environment(only))
        assert process.stdout is not None
        async with asyncio.timeout(30):
            group_id = (await process.stdout.readline()).decode().strip()
            await eventually(
                lambda: f"a watch among {only.paths}", lambda: any(path.endswith("/watch") for path in only.paths)
            )
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
        assert process.returncode == 130
        assert f"heteroflow stop {group_id}" in err.decode()
        assert b"Traceback" not in err


async def test_an_empty_log_says_what_the_group_does():
    async with nodes(1) as (only,):
        code, out, err = await finished("logs", GROUP, env=environment(only))
        assert (code, out) == (0, b"")
        assert b"no log lines; the group is completed" in err


async def test_a_terminal_is_protected_and_a_pipe_gets_what_the_job_wrote():
    async with nodes(1) as (only,):
        line = {
            "rank": 0,
            "attempt": 1,
            "offset": 10,
            "at": "2026-11-29T17:00:00.000Z",
            "stream": "out",
            "text": HOSTILE,
        }
        only.state.lines.append(line)
        _, raw, _ = await finished("logs", "--rank", "0", GROUP, env=environment(only))
        assert raw.decode() == HOSTILE + "\n"
        _, as_json, _ = await finished("logs", "-o", "json", GROUP, env=environment(only))
        assert as_json.isascii() and json.loads(as_json.splitlines()[0])["text"] == HOSTILE
        for env, colours in ((environment(only), True), (environment(only, NO_COLOR="1"), False)):
            shown = await on_terminal("logs", GROUP, env=env)
            assert ("\x1b[1;31m" in shown) is colours
            rest = shown.replace("\x1b[1;31m", "").replace("\x1b[0m", "").replace("\r\n", "\n")
            assert rest == "0│  hiddenred ␍Status: completed  \ufffd ◇ fake\n"


async def on_terminal(*words, env):
    ours, theirs = pty.openpty()
    try:
        process = await started(*words, env=env, stdout=theirs)
        os.close(theirs)
        async with asyncio.timeout(30):
            await process.wait()
        os.set_blocking(ours, False)
        return os.read(ours, 65_536).decode()
    finally:
        os.close(ours)


async def test_a_follow_survives_its_node_and_says_so_beside_the_log():
    async with nodes(2) as (first, second):
        first.state.add_lines(3)
        process = await started("logs", "-f", GROUP, env=environment(first))
        assert process.stdout is not None and process.stderr is not None
        async with asyncio.timeout(30):
            while b"line 30" not in await process.stdout.readline():
                pass
            await first.stop()
            await eventually("the second node to be asked", lambda: second.asked)
            second.state.add_lines(2)
            second.state.ended = True
            second.state.touch()
            out, err = await process.communicate()
        assert out.decode().splitlines() == ["0│ line 40", "0│ line 50"]
        assert "went away" in err.decode() and "◈" in err.decode()
        assert process.returncode == 0
