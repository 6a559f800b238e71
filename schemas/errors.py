"""Problem objects, and the exceptions that carry one.

    HeteroFlowError              status  is raised when
    |- InvalidInput              400     the caller's words are wrong; sending them again cannot help
    |- NotAuthorised             401     the token is missing or wrong
    |- Forbidden                 403     it is known who asks, and he may not do that
    |- NotFound                  404     the named thing is not in the state that was read
    |- Conflict                  409     the words are fine, the state does not allow them now
    |- Expired                   410     the request id, cursor or token is too old to be honoured
    |- NotSupportedYet           422     the field is known, its machinery is not in this version
    `- Unavailable               503     nothing is wrong with the request; try again, here or on another node
       |- NoLeader               503     no leader is known: an election runs or a majority is unreachable
       |- Overloaded             503     a bounded queue is full
       |- OutcomeUnknown         503     the answer was lost, the write may have happened: repeat it under the same id
       `- DiskFull               507     the log cannot be written

A `Problem` is what crosses a wire; an exception is how one travels inside a process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with an input: where it is, what it is, what to do."""

    code: str
    path: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "path": self.path, "message": self.message, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Problem:
    """code: stable and machine-readable; message: what happened and what it means; hint: what to do next; field: dotted
    path of the first offending field, "" where there is none; findings: everything wrong, not only the first."""

    code: str
    message: str
    hint: str = ""
    field: str = ""
    findings: tuple[Finding, ...] = ()
    status: int = 400

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "field": self.field,
            "findings": [finding.to_dict() for finding in self.findings],
            "status": self.status,
        }

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "Problem":
        """Tolerant: it reads what another version or a proxy answered, so absent parts get plain defaults."""
        findings = raw.get("findings")
        status = raw.get("status")
        return Problem(
            code=str(raw.get("code") or "unknown"),
            message=str(raw.get("message") or "the other side answered an error without a message"),
            hint=str(raw.get("hint") or ""),
            field=str(raw.get("field") or ""),
            findings=tuple(
                Finding(*(str(item.get(part) or "") for part in ("code", "path", "message", "hint")))
                for item in (findings if isinstance(findings, list) else [])
                if isinstance(item, Mapping)
            ),
            status=status if isinstance(status, int) and not isinstance(status, bool) else 500,
        )

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def problem_from_findings(code: str, message: str, findings: Sequence[Finding], status: int = 400) -> Problem:
    first = findings[0] if findings else None
    return Problem(
        code=code,
        message=message,
        hint=first.hint if first else "",
        field=first.path if first else "",
        findings=tuple(findings),
        status=status,
    )


class HeteroFlowError(Exception):
    """Base of everything this product raises on purpose."""

    status = 500

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        field: str = "",
        findings: Sequence[Finding] = (),
        status: int | None = None,
    ) -> None:
        self.problem = Problem(code, message, hint, field, tuple(findings), self.status if status is None else status)
        super().__init__(str(self.problem))

    @property
    def code(self) -> str:
        return self.problem.code


class InvalidInput(HeteroFlowError):
    status = 400


class NotAuthorised(HeteroFlowError):
    status = 401


class Forbidden(HeteroFlowError):
    status = 403


class NotFound(HeteroFlowError):
    status = 404


class Conflict(HeteroFlowError):
    status = 409


class Expired(HeteroFlowError):
    status = 410


class NotSupportedYet(HeteroFlowError):
    status = 422


class Unavailable(HeteroFlowError):
    status = 503


class NoLeader(Unavailable):
    pass


class Overloaded(Unavailable):
    pass


class OutcomeUnknown(Unavailable):
    pass


class DiskFull(Unavailable):
    status = 507


# The codes of the voter protocol and of reducer refusals that are not plain conflicts.
ERROR_BY_CODE: dict[str, type[HeteroFlowError]] = {
    "invalid_command": InvalidInput,
    "invalid_document": InvalidInput,
    "invalid_id": InvalidInput,
    "unauthorised": NotAuthorised,
    "forbidden": Forbidden,
    "no_such_group": NotFound,
    "no_such_node": NotFound,
    "no_such_key": NotFound,
    "no_such_task": NotFound,
    "request_expired": Expired,
    "not_supported_yet": NotSupportedYet,
    "no_leader": NoLeader,
    "overloaded": Overloaded,
    "too_many_requests": Overloaded,
    "timeout_unknown": OutcomeUnknown,
    "disk_full": DiskFull,
}


def error_for(code: str, message: str, hint: str = "", default: type[HeteroFlowError] = Conflict) -> HeteroFlowError:
    return ERROR_BY_CODE.get(code, default)(code, message, hint)
