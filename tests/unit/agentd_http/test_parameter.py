"""What a parameter's declaration says is what it takes."""

import pytest
from aiohttp.test_utils import make_mocked_request

from agentd.http.parameter import CONSISTENCY, Choices, Flag, Whole, Words, check_query
from schemas.errors import Finding, InvalidInput

TAG = Words("tag", "", high=8, repeats=True)
MOMENT = Words("since", "Unix seconds", pattern=r"^[0-9]+$")
STATUS = Choices("status", ("running", "failed"), "")


def asked(query: str):
    return make_mocked_request("GET", f"/x?{query}")


def test_each_of_several_is_looked_at():
    assert TAG.read_all(asked("tag=a&tag=b")) == ["a", "b"] and TAG.read_all(asked("")) == []
    assert TAG.read(asked("tag=a")) == "a" and TAG.read(asked("")) == MOMENT.read(asked("")) == ""
    for parameter, query in ((TAG, "tag=a&tag=" + "b" * 9), (MOMENT, "since=1&since=x"), (MOMENT, "since=")):
        with pytest.raises(InvalidInput) as caught:
            parameter.read_all(asked(query))
        assert caught.value.problem.field == parameter.name


def test_left_out_is_all_and_empty_is_a_mistake():
    assert STATUS.read(asked("")) == []
    assert STATUS.read(asked("status=running,failed&status=failed")) == ["running", "failed", "failed"]
    for query in ("status=", "status=running,", "status=Running"):
        with pytest.raises(InvalidInput):
            STATUS.read(asked(query))


KNOWN = (TAG, MOMENT, STATUS, CONSISTENCY, Flag("follow", ""), Whole("tail", 0, 9, ""))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("statuss=running", {"statuss": "did you mean status?"}),
        ("Tail=3&folow=1&tag=a", {"Tail": "did you mean tail?", "folow": "did you mean follow?"}),
        ("x", {"x": "known here: tag, since, status, consistency, follow, tail"}),
        ("%F0%9F%9A%80=1", {"🚀": "known here: tag, since, status, consistency, follow, tail"}),
        ("tail=1&tail=2", {"tail": "give it once"}),
        ("follow=1&tail=1&tail=2&follow=1", {"follow": "give it once", "tail": "give it once"}),
        ("tag=a&tag=b&status=running&status=failed&tail=1", {}),
        ("", {}),
    ],
)
def test_no_parameter_is_left_out_in_silence(query, said):
    """Every mistake in one answer; a list may be given again."""
    found: tuple[Finding, ...] = ()
    try:
        check_query(asked(query), KNOWN)
    except InvalidInput as error:
        found = error.problem.findings
    assert {finding.path: finding.hint for finding in found} == said
