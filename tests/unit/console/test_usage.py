"""What a person reads who typed something that there is not."""

import io
import json
import re

import pytest
from ruamel.yaml import YAML

from console.cli.main import run
from console.cli.terminal import Terminal
from console.cli.verb import VERBS
from console.core import other_words
from console.core.completion import SHELLS
from console.core.value_yaml import value_yaml


def said(capsys, *words):
    code = run(words, Terminal(io.StringIO(), io.StringIO(), {}))
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["squeue"], "That is `heteroflow queue` here."),
        (["CANCEL"], "That is `heteroflow stop` here."),
        (["doctor"], "That is `heteroflow-agentd doctor` here."),
        (["shwo", "g"], "Did you mean `heteroflow show`?"),
        (["qqqq"], "`heteroflow --help` lists the verbs."),
        (["ls", "--statsu", "x"], "Did you mean --status?"),
        (["submit", "f", "--dry-run"], "heteroflow lint FILE"),
        (["ls", "--token=x"], "--token-file"),
        (["key", "create", "a", "--role", "membre"], "Did you mean member?"),
        (["exec", "g", "0", "ls", "-l"], "Put -- before the program"),
        (["ls", "g"], "ls does not take 'g' as well"),
        (["ls", "--timeout", "soon"], "must be a number of seconds"),
        (["exec", "g"], "required: RANK\n"),
    ],
)
def test_a_mistake_is_answered_with_what_to_type(capsys, words, wanted):
    code, err = said(capsys, *words)
    assert code == 2
    assert wanted in err and "usage: heteroflow" in err


def test_an_unknown_verb_is_not_answered_with_all_of_them(capsys):
    _, err = said(capsys, "squeue")
    assert len(err.splitlines()) < 8


def test_words_of_others_lead_to_verbs_that_are_here():
    for word, meant in other_words._VERBS.items():
        assert word not in VERBS
        first = meant.split()[0]
        assert first in VERBS or first == "heteroflow-agentd"


def test_hostile_words_reach_no_terminal(capsys):
    for words in (["\x1b]0;x\x07"], ["ls", "--\x1b[2J"], ["ls", "\x9b2J"], ["ls", "-o", "\x1b[2J"]):
        _, err = said(capsys, *words)
        assert "\x1b" not in err and "\x9b" not in err


@pytest.mark.parametrize("words", [["help"], ["help", "ls"], ["--version"], ["-V"]])
def test_other_ways_to_ask(capsys, words):
    assert said(capsys, *words) == (0, "")


def test_what_stands_behind_two_dashes_belongs_to_the_program(monkeypatch):
    from console.cli import exec as verb
    from console.cli.verb import Verb

    seen = []

    async def note(args, terminal, client):
        seen.append((args.program, args.tty, args.token_file))
        return 0

    monkeypatch.setattr(verb, "VERB", Verb(verb._add_arguments, note, lambda args: False, ("table",), program=True))
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    for words in (
        ["exec", "g", "0", "-T", "--token-file", "f", "--", "ls", "-T", "--", "--node"],
        ["exec", "-T", "--token-file", "f", "g", "0", "--", "ls", "-T", "--", "--node"],
        ["--token-file", "f", "exec", "g", "0", "ls", "-T", "--", "-T", "--", "--node"],
    ):
        assert run(words, terminal) == 0
    assert seen == [(["ls", "-T", "--", "--node"], False, "f")] * 3


def test_every_verb_that_says_json_says_yaml(capsys):
    out = io.StringIO()
    assert run(["template", "ls", "-o", "yaml"], Terminal(out, io.StringIO(), {})) == 0
    plain = io.StringIO()
    assert run(["template", "ls", "-o", "json"], Terminal(plain, io.StringIO(), {})) == 0
    assert YAML(typ="safe", pure=True).load(out.getvalue()) == json.loads(plain.getvalue())


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_value_reads_back_from_yaml(version):
    texts = [
        "",
        "no",
        "~",
        "null",
        "1e5",
        "0755",
        "-",
        "- a",
        "a: b",
        "#x",
        "2026-01-01",
        "é◈\u202e",
        "\U0001f600",
        "\x1b\n\t",
    ]
    texts += ["a b", "'", '"', "\\", "22:30", ".5", "=", "<<", "*a", "&a", "!x", "%", "@", "`", "a #b", "Yes", "\ud800"]
    value = {
        **{text: text for text in texts},
        "list": [1, -2.5, 1e-07, 1e300, True, None, [], {}, [[1, [2]], {"a": [{"b": None, "c": "d"}]}]],
        "map": {"a": {}, "b": {"c": [{"d": 1}, {"e": 2}]}},
    }
    shown = value_yaml(value)
    assert shown.isascii() and shown.startswith("---\n")
    reader = YAML(typ="safe", pure=True)
    assert reader.load(f"%YAML {version}\n{shown}") == value
    for scalar in (None, 3, "x", [], {}):
        assert reader.load(value_yaml(scalar)) == scalar


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_verb(shell):
    out = io.StringIO()
    assert run(["completion", shell], Terminal(out, io.StringIO(), {})) == 0
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", out.getvalue())
    assert "pause-scheduling" in out.getvalue() and "--after-checkpoint" in out.getvalue()
