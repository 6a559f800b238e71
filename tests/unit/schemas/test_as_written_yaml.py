import pytest

from schemas.as_written_yaml import parse_yaml
from schemas.errors import InvalidInput
from schemas.lexemes import Plain
from schemas.strict_json import BodyTooLarge


@pytest.mark.parametrize(
    "typed",
    "1e-4 1.0e-4 2.0e-5 5e6 0.00001 0755 07 08 0o17 0x1F no on yes off y n true "
    "22:30 2026-01-01 1_000 .5 .inf -.nan +1".split(),
)
def test_unquoted_scalars_stay_as_typed(typed):
    read = parse_yaml(f"hyper_params:\n  x: {typed}\n".encode())
    assert read == {"hyper_params": {"x": typed}}
    assert isinstance(read["hyper_params"]["x"], Plain)


def test_quoted_scalars_are_plain_text():
    read = parse_yaml(b"a: '1e-4'\nb: \"0755\"\nc: |\n  two\n  lines\nd: ''\ne: '~'\n")
    assert read == {"a": "1e-4", "b": "0755", "c": "two\nlines\n", "d": "", "e": "~"}
    assert not any(isinstance(value, Plain) for value in read.values())


@pytest.mark.parametrize("typed", ["~", "null", "Null", "NULL", ""])
def test_null_is_null(typed):
    assert parse_yaml(f"a: {typed}\n".encode()) == {"a": None}


def test_lists_and_flow_style():
    assert parse_yaml(b"a: [x, 2]\nb:\n- {c: d}\n- e\n") == {"a": ["x", "2"], "b": [{"c": "d"}, "e"]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"a: 1\nb: 2\na: 3\n", "line 3: the key 'a' stands twice"),
        (b"t:\n  x: 1\n  'x': 2\n", "line 3: the key 'x' stands twice"),
        (b"a: 1\nb:\n\tc: 2\n", "line 3"),
        (b"a: 1\n---\nb: 2\n", "line 2: a second document"),
        (b"a: &x 1\nb: *x\n", "line 1: &x"),
        (b"a: *x\n", "line 1: *x"),
        (b"a: &a [x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n", "line 1: &a"),
        (b"a: 1\n<<: {b: 2}\n", "line 2: << merges"),
        (b"a: !!python/object/apply:os.system [id]\n", "line 1: the tag"),
        (b"a: !!float 1\n", "the tag"),
        (b"a: [1, 2\nb: 3\n", "line 2"),
        (b"a: {b: 1\n", "line"),
        (b"- a\nb: c\n", "line 2"),
        (b"", "empty"),
        (b"# nothing\n", "empty"),
        (b"a: \x00\n", "not allowed"),
        (b"a: \xff\n", "not UTF-8"),
        (b"? [a, b]\n: 1\n", "not a word"),
        (b"~: 1\n", "empty or not a word"),
        (b"[" * 5000, "nested deeper"),
        (b"%YAML 3.1\n---\na: 1\n", "incompatible"),
        (b'a: "\\xg"\n', "line 1"),
    ],
)
def test_refusals_name_the_line(body, said):
    with pytest.raises(InvalidInput) as refused:
        parse_yaml(body)
    assert said in refused.value.problem.message
    assert refused.value.problem.hint


def test_size_is_checked_before_reading():
    with pytest.raises(BodyTooLarge):
        parse_yaml(b"a: " + b"x" * 20_000_000)


def test_a_byte_order_mark_is_no_text():
    assert parse_yaml(b"\xef\xbb\xbfname: x\n") == {"name": "x"}
