"""JSON Schema (2020-12) out of the shapes that the code itself uses, so that no page can say something else."""

import types
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

Schema = dict[str, Any]
COMPONENTS = "#/components/schemas/"
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    Any: {},
}


def schema_of(shape: Any, components: dict[str, Schema]) -> Schema:
    """TypedDicts become references; what they stand for is added to `components` by name. Raises TypeError for a type
    that no answer has."""
    if isinstance(shape, Mapping):
        return dict(shape)
    if shape in _PLAIN:
        return dict(_PLAIN[shape])
    if is_typeddict(shape):
        return _reference(shape, components)
    origin, parts = get_origin(shape), get_args(shape)
    if origin is list:
        return {"type": "array", "items": schema_of(parts[0], components)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(parts[1], components)}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is NotRequired:
        return schema_of(parts[0], components)
    if origin in (Union, types.UnionType):
        return _either([schema_of(part, components) for part in parts])
    raise TypeError(f"{shape!r} has no JSON schema here")


def _reference(shape: Any, components: dict[str, Schema]) -> Schema:
    name = shape.__name__
    if name not in components:
        components[name] = {}  # a shape may hold itself
        hints = get_type_hints(shape, include_extras=True)
        schema: Schema = {
            "type": "object",
            "properties": {field: schema_of(kind, components) for field, kind in hints.items()},
            "required": sorted(shape.__required_keys__),
        }
        # A TypedDict inherits dict's words where it has none of its own.
        if shape.__doc__ and shape.__doc__ != dict.__doc__:
            schema["description"] = " ".join(shape.__doc__.split())
        components[name] = schema
    return {"$ref": COMPONENTS + name}


def _either(options: list[Schema]) -> Schema:
    if all(set(option) == {"type"} and isinstance(option["type"], str) for option in options):
        return {"type": [option["type"] for option in options]}
    return {"anyOf": options}
