"""What a route says of itself in the API's description, declared beside it:

    @routes.get("/api/v1/nodes")
    @Described("Nodes and their cards", answer=api.NodeList, parameters=(CONSISTENCY,))
    async def nodes(request): ...

The handler's docstring is the longer text. Answers that every route can give (401, 421, 500, 503 ...) are added by
`openapi`; `problems` names the others."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from agentd.http.parameter import CONSISTENCY, Parameter

H = TypeVar("H", bound=Callable[..., Awaitable[Any]])
_ATTRIBUTE = "_heteroflow_described"


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """title: a few words. answer: a TypedDict, a JSON schema, or None for an empty one. statuses: of the good answer.
    body: as answer, or None where none is read. kind: media type of an answer that is neither JSON nor msgpack.
    problems: refusals of this route. once: it takes an Idempotency-Key. headers: names with what they say; asking:
    those that may be left out."""

    title: str
    answer: Any = None
    statuses: tuple[int, ...] = (200,)
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    body_kind: str | None = None
    kind: str | None = None
    problems: tuple[int, ...] = ()
    once: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    asking: tuple[tuple[str, str], ...] = ()

    @property
    def reading(self) -> bool:
        """The answer says of which moment it is."""
        return CONSISTENCY in self.parameters

    def __call__(self, handler: H) -> H:
        setattr(handler, _ATTRIBUTE, self)
        return handler


def description_of(handler: Any) -> Described | None:
    found = getattr(handler, _ATTRIBUTE, None)
    return found if isinstance(found, Described) else None
