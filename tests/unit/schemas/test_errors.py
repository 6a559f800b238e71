import pytest

from schemas import errors
from schemas.errors import ERROR_BY_CODE, Conflict, Finding, HeteroFlowError, Problem, error_for, problem_from_findings

FINDINGS = (Finding("a", "task.env", "is wrong", "mend it"), Finding("b", "name", "is empty"))


def test_a_problem_survives_the_wire():
    problem = Problem("bad", "It failed.", "Try x.", "task.env", FINDINGS, 422)
    assert Problem.from_dict(problem.to_dict()) == problem
    assert str(problem) == "It failed. Try x."


@pytest.mark.parametrize(
    "raw", [{}, {"findings": "x", "status": "y"}, {"findings": [1, {"code": None}], "status": True}]
)
def test_a_strange_answer_still_becomes_a_problem(raw):
    problem = Problem.from_dict(raw)
    assert (problem.code, problem.status) == ("unknown", 500)
    assert problem.message


def test_the_first_finding_leads():
    problem = problem_from_findings("invalid", "2 things are wrong.", FINDINGS)
    assert (problem.field, problem.hint, len(problem.findings)) == ("task.env", "mend it", 2)


@pytest.mark.parametrize("code", sorted(ERROR_BY_CODE))
def test_codes_find_their_exception(code):
    error = error_for(code, "it failed")
    assert type(error) is ERROR_BY_CODE[code]
    assert error.problem.status == type(error).status
    assert error.code == code


def test_an_unknown_code_is_a_conflict():
    assert isinstance(error_for("card_taken", "x"), Conflict)


def test_the_drawn_tree_is_the_real_one():
    drawn = {word for word in str(errors.__doc__).replace("|-", " ").replace("`-", " ").split() if word in dir(errors)}
    real = {name for name, item in vars(errors).items() if isinstance(item, type) and issubclass(item, HeteroFlowError)}
    assert real <= drawn
