"""agent.log: a JSON object a line, whatever is in the message, and never the token."""

import json
import logging

from agentd.json_log import JsonLines, open_agent_log

TOKEN = "s3cr3t" * 8


def line(message, *args, **extra):
    lines = JsonLines("n1")
    lines.hide(TOKEN)
    record = logging.getLogger("t").makeRecord(
        "t", logging.INFO, "f", 1, message, args, extra.pop("exc_info", None), extra=extra
    )
    return lines.format(record)


def test_one_line_whatever_is_in_it():
    text = line("two\nlines %s", "\x1b[31m\u2028", group_id="tg-1", odd={1: object})
    assert "\n" not in text
    value = json.loads(text)
    assert value["message"] == "two\nlines \x1b[31m\u2028" and value["group_id"] == "tg-1" and value["node"] == "n1"


def test_the_token_is_nowhere():
    try:
        raise RuntimeError(f"Bearer {TOKEN}")
    except RuntimeError as error:
        failure = (type(error), error, error.__traceback__)
    text = line("header %s", f"Bearer {TOKEN}", note=[TOKEN], exc_info=failure)
    assert TOKEN not in text and json.loads(text)["message"] == "header Bearer [redacted]"


def test_the_file_is_not_for_everyone(tmp_path):
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        open_agent_log(tmp_path, "n1", echo=False)
        logging.getLogger("x").info("hello")
        assert json.loads((tmp_path / "agent.log").read_text())["message"] == "hello"
        for handler in logging.getLogger().handlers:
            handler.close()
    finally:
        logging.getLogger().handlers[:], level = before
        logging.getLogger().setLevel(level)
