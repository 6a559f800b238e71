"""What a parameter's declaration says is what it takes."""

import pytest
from aiohttp.test_utils import make_mocked_request

from agentd.http.parameter import Choices, Words
from schemas.errors import InvalidInput

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
