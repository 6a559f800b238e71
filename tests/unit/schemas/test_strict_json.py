import json
import time

import pytest

from schemas.errors import InvalidInput
from schemas.lexemes import Number
from schemas.limits import DOCUMENT_MAX
from schemas.strict_json import BodyTooLarge, parse_strict_json


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"x":NaN}', "NaN is no JSON number"),
        (b'{"checkpoint_interval":\n Infinity}', "line 2: Infinity"),
        (b'{"x":-Infinity}', "-Infinity"),
        (b'{"a":1,}', "double quotes"),
        (b"[1,]", "line 1"),
        (b'{"a":1,"a":2}', "'a' stands twice"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a":"x"}'.encode("utf-16"), "not UTF-8"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{'a':1}", "line 1, column 2"),
        (b'{"a":01}', "line 1"),
        (b'{"a":+1}', "line 1"),
        (b'{"a":.5}', "line 1"),
        (b'{"a":"tab\there"}', "control character"),
        (b'{"a":1} {"b":2}', "Extra data"),
        (b"[" * 10_000, "nested deeper"),
        (b'{"a":' * 10_000, "nested deeper"),
        (b"nul", "line 1"),
        (b'{"a":tru}', "line 1"),
    ],
)
def test_what_the_standard_does_not_have_is_refused_with_its_place(body, said):
    with pytest.raises(InvalidInput) as refused:
        parse_strict_json(body)
    assert said in refused.value.problem.message
    assert refused.value.problem.status == 400
    assert refused.value.problem.findings[0].hint


def test_a_body_of_20_mb_is_refused_by_size_before_it_is_read():
    with pytest.raises(BodyTooLarge) as refused:
        parse_strict_json(b"[" * 20_000_000)
    assert refused.value.problem.status == 413


@pytest.mark.parametrize(
    "text", ["1", "-0", "0", "1.0", "1e-4", "5e6", "2.0e-5", "1E400", "9007199254740993", "0.00001"]
)
def test_numbers_keep_their_spelling(text):
    read = parse_strict_json(f'{{"x": {text}}}'.encode())["x"]
    assert isinstance(read, Number)
    assert read == text


def test_values_that_are_not_numbers_are_themselves():
    assert parse_strict_json(b'{"a":[true,false,null,"1e-4"]}') == {"a": [True, False, None, "1e-4"]}
    assert not isinstance(parse_strict_json(b'"1"'), Number)
    assert parse_strict_json(b"null") is None


def test_words_inside_texts_are_no_constants_and_brackets_no_depth():
    text = json.dumps({"notes": "NaN Infinity -Infinity " + "[{" * 500 + '\\"\\\\'})
    assert parse_strict_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "hostile", [b'"' + b'\\"' * 90_000, b'"' * 150_000, b"\\" * 150_000, b'{"a":"' + b"\\\\" * 90_000]
)
def test_an_unterminated_text_costs_its_length_not_its_square(hostile):
    assert len(hostile) <= DOCUMENT_MAX
    began = time.process_time()
    with pytest.raises(InvalidInput):
        parse_strict_json(hostile)
    assert time.process_time() - began < 1.0
