"""A refusal, and what is wrong with a document."""

from typing import TypedDict


class FindingShown(TypedDict):
    code: str
    path: str
    message: str
    hint: str


class ProblemShown(TypedDict):
    """Every refusal. code: stable, for programs; field: dotted path of the first offending field, "" where there is
    none; findings: everything wrong."""

    code: str
    message: str
    hint: str
    field: str
    findings: list[FindingShown]
    status: int


class Warned(TypedDict):
    code: str
    path: str
    message: str
    hint: str
