"""What a reducer answers."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """ok: whether the command did (or had already done) what it says; code: "" or the reason's name; text: the reason
    for people; data: the answer's facts. A refusal wrote nothing but its request record."""

    ok: bool
    code: str = ""
    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "code": self.code, "text": self.text, "data": self.data}


def refused(code: str, text: str, **data: Any) -> Outcome:
    return Outcome(False, code, text, data)


def done(**data: Any) -> Outcome:
    return Outcome(True, data=data)
