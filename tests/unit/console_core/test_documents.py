"""Clone: YAML that reads back as the same document; guards that say what is wrong."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from console.core.document_yaml import document_yaml
from console.core.failure_advice import advice
from console.core.guards import changed_fields, judged
from console.core.line import plain
from schemas.as_written_yaml import parse_yaml
from schemas.task_group import accepted_task_group, check_task_group
from tests.snapshots.canned_mesh import group_row

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)


def document(**changed):
    return accepted_task_group(group_row(1, "a", "running", 2, 8)["document"] | changed)[0]


def read_back(text):
    return accepted_task_group(parse_yaml(text.encode()))[0]


@settings(deadline=None, max_examples=60)
@given(
    TEXTS,
    st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), TEXTS, max_size=4),
    st.lists(TEXTS, min_size=1, max_size=4),
)
def test_what_is_emitted_reads_back_the_same(name, params, command):
    raw = group_row(1, name, "running", 2, 8)["document"]
    raw["training"]["hyper_params"] = params
    raw["task"]["command"] = command
    checked = check_task_group(raw)
    if checked.document is not None:
        assert read_back(document_yaml(checked.document)) == checked.document


def test_texts_that_yaml_would_take_for_something_else():
    for text in (
        "null",
        "~",
        "true",
        "1e-4",
        "0755",
        "- a",
        "a: b",
        "#x",
        "a\tb",
        "'",
        '"',
        "*x",
        "&x",
        "!x",
        "%x",
        "@x",
        "`x",
        "{a}",
        "[a]",
        " a",
        "2026-01-01",
        "\x1b[2J",
    ):
        raw = document()
        raw["task"]["env"] = {"A": text}
        checked = check_task_group(raw)
        if checked.document is not None:
            assert read_back(document_yaml(checked.document)) == checked.document, text


KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True) | TEXTS.filter(lambda key: key != "<<")
SCALARS = (
    TEXTS
    | st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "null", "~", "...", "---", "1e-5", "0123", "no"])
)
# Lists and maps in one another: a document has mounts, and later versions have what this one does not know.
SHAPES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


def as_texts(value):
    if isinstance(value, dict):
        return {key: as_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_texts(item) for item in value]
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(KEYS, SHAPES, min_size=1, max_size=4))
def test_any_shape_reads_back_the_same(shape):
    assert parse_yaml(document_yaml(shape).encode()) == as_texts(shape)


def test_a_key_without_a_value_stays_one():
    """In a draft that a template fills, `notes:` became the text None."""
    assert parse_yaml(document_yaml({"task": {"image": None}}).encode()) == {"task": {"image": None}}


def test_what_is_mounted_is_cloned_too():
    """`heteroflow clone` and the console's editor wrote `mounts: [{}]`, and nobody could submit that."""
    raw = document()
    raw["task"] |= {"image": "team/pt:1", "mounts": [{"source": "/data/a b", "target": "/a"}]}
    checked = check_task_group(raw)
    assert checked.document is not None, checked.errors
    assert read_back(document_yaml(checked.document)) == checked.document


def test_an_escape_is_spelled_out():
    text = document_yaml({"name": "a\x1b]52;c;x\x07b"})
    assert text.isascii() and "\\u001b" in text


def test_guards_name_the_field_and_the_change():
    original = document()
    text = document_yaml(original)
    same = judged(text, original, 80)
    assert same.body is not None and "the same as the original" in plain(same.lines[0])
    edited = judged(text.replace("lr: 3e-4", "lr: 1e-4"), original, 80)
    assert (
        "training.hyper_params.lr" in plain(edited.lines[1])
        and json.loads(edited.body or b"")["training"]["hyper_params"]["lr"] == "1e-4"
    )
    wrong = judged(text.replace("n_nodes: 2", "n_nodes: 0"), original, 80)
    assert wrong.body is None and "training.n_nodes" in plain(wrong.lines[0])
    assert judged("a: [", original, 80).body is None
    assert judged("\ud800", original, 80).body is None


def test_changed_fields_by_dotted_name():
    assert changed_fields({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4}) == [
        ("a.c", "2", "3"),
        ("d", "(none)", "4"),
    ]


def test_every_end_has_advice():
    assert "memory" in advice("", 137, None)[0] and advice("", 137, None) == advice("", None, 9)
    assert "not found" in advice("", 127, None)[0]
    for code, signal in ((0, None), (3, None), (None, None), (None, 64), (255, None)):
        assert all(advice("", code, signal))
