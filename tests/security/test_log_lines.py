"""Attacks on whoever reads logs: lines that were never written, and characters that a terminal obeys."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.json_log import JsonLines
from tests.integration.served_api import AUTH, document, served

HOSTILE = [
    "\x1b]52;c;aGFja2Vk\x07",
    "\x1b]0;title\x1b\\",
    "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[H",
    "\x1bP$qm\x1b\\",
    "\x1b_APC\x1b\\",
    "\x9b2J",
    "\x90payload\x9c",
    "back\b\b\b\bspace",
    "over\rwritten",
    "\u202etxt.exe",
    "\u2066isolated\u2069",
    'a line\n{"at": "2026-01-01T00:00:00.000Z", "level": "info", "message": "login ok"}',
    "next line\x85, separator\u2028, paragraph\u2029",
    "\0\x7f",
    "\U000e0001tag",
]


def logged(text: str) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines("n1"))
    record = logging.makeLogRecord(
        {"msg": "refused %s", "args": (text,), "name": f"x.{text}", "path": text, "list": [text]}
    )
    handler.emit(record)
    return stream.getvalue()


@pytest.mark.attack(48, 49)
@pytest.mark.parametrize("text", HOSTILE)
def test_one_record_is_one_line_that_no_terminal_obeys(text):
    line = logged(text)
    assert line.endswith("\n") and line[:-1].isprintable()
    assert len(line.splitlines()) == 1
    entry = json.loads(line)
    assert entry["message"] == f"refused {text}" and entry["path"] == text and entry["list"] == [text]


@pytest.mark.attack(48, 49)
@given(st.text())
def test_any_text_comes_back_whole_from_a_line_that_is_printable(text):
    line = logged(text)
    assert line[:-1].isprintable() and json.loads(line)["path"] == text


def test_what_people_write_stays_readable():
    assert "训练 Überprüfung 🚀" in logged("训练 Überprüfung 🚀")


@pytest.mark.attack(48, 49)
async def test_hostile_names_and_paths_are_refused_and_forge_no_line(tmp_path, caplog, attempts):
    class Broken:
        async def query(self, *_, **__):
            raise RuntimeError(HOSTILE[0])

        async def status(self):
            raise RuntimeError(HOSTILE[2])

    async with served(tmp_path) as client:
        for text in HOSTILE:
            for field in ("name", "tenant", "notes"):
                # Lines are what notes are for; how they are shown is the console's matter.
                body = document() | {field: f"a{text}" + ("\x1b" if field == "notes" else "")}
                attempts["documents"] += 1
                async with client.post("/api/v1/task-groups", json=body, headers=AUTH) as response:
                    said = await response.text()
                    assert response.status == 400, text
                    # Said in a problem, it is shown by its escape and not itself.
                    assert all(one["message"].isprintable() for one in json.loads(said)["findings"]), text
    async with served(tmp_path / "broken", Broken()) as client:
        for text in HOSTILE:
            attempts["requests"] += 1
            async with client.get("/api/v1/nodes", params={"cursor": text}, headers=AUTH) as response:
                assert response.status == 500
    formatter = JsonLines("n1")
    lines = [formatter.format(record) for record in caplog.records if hasattr(record, "error_id")]
    assert len(lines) == len(HOSTILE)
    assert all(line.isprintable() and json.loads(line)["path"] == "/api/v1/nodes" for line in lines)
