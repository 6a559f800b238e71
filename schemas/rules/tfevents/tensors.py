"""One number out of a TensorProto. Writers use either the raw bytes or a field per kind of number, packed or not."""

from struct import Struct

from schemas.rules.tfevents.protobuf import BYTES, FIXED32, FIXED64, VARINT, Malformed, fields, signed, varint

_BFLOAT16 = 14
_HALF = 19
_FLOAT, _DOUBLE = 1, 2
# dtype -> how one element lies in tensor_content
_CONTENT = {
    _FLOAT: Struct("<f"),
    _DOUBLE: Struct("<d"),
    3: Struct("<i"),
    4: Struct("<B"),
    5: Struct("<h"),
    6: Struct("<b"),
    9: Struct("<q"),
    10: Struct("<?"),
    _BFLOAT16: Struct("<H"),
    17: Struct("<H"),
    _HALF: Struct("<e"),
    22: Struct("<I"),
    23: Struct("<Q"),
}
# dtype -> number of the TensorProto field that holds its elements
_FIELD = {
    _FLOAT: 5, _DOUBLE: 6, 3: 7, 4: 7, 5: 7, 6: 7, 9: 10, 10: 11, _BFLOAT16: 13, 17: 7, _HALF: 13, 22: 16, 23: 17,
}  # fmt: skip
_VALUE_FIELDS = frozenset(_FIELD.values())
_UNSIGNED = frozenset((4, 17, 22, 23))
_bits_to_float = Struct("<I"), Struct("<f"), Struct("<H"), Struct("<e")


def scalar_of(data: bytes, at: int, end: int) -> float | None:
    """The number of a tensor with exactly one element; None for text, for other shapes and kinds. Raises Malformed."""
    dtype = 0
    elements = 1
    content: bytes | None = None
    held: list[tuple[int, int, int, int]] = []
    for number, wire, a, b in fields(data, at, end):
        if number == 1 and wire == VARINT:
            dtype = a
        elif number == 2 and wire == BYTES:
            elements = _elements(data, a, b)
        elif number == 4 and wire == BYTES:
            content = data[a : min(b, a + 9)]
        elif number in _VALUE_FIELDS and len(held) < 3:
            held.append((number, wire, a, b))
    if elements != 1 or dtype not in _CONTENT:
        return None
    if content:
        kind = _CONTENT[dtype]
        if len(content) != kind.size:
            return None
        raw = kind.unpack(content)[0]
        return _bfloat16(raw) if dtype == _BFLOAT16 else float(raw)
    raws = [raw for entry in held if entry[0] == _FIELD[dtype] for raw in _raws(data, *entry)]
    # A tensor without a value holds its kind's zero, as everywhere in proto3.
    return 0.0 if not raws else _number(dtype, raws[0]) if len(raws) == 1 else None


def _elements(data: bytes, at: int, end: int) -> int:
    """Product of the dimensions; 0 where it is not known to be 1."""
    for number, wire, a, b in fields(data, at, end):
        if number == 2 and wire == BYTES:
            sizes = [size for field, kind, size, _ in fields(data, a, b) if field == 1 and kind == VARINT]
            if sizes[-1:] != [1]:
                return 0
        elif number == 3 and wire == VARINT and a:
            return 0
    return 1


def _raws(data: bytes, number: int, wire: int, a: int, b: int) -> list[int | float]:
    """At most two elements of one field, so that one element can be told from several."""
    if number == 5:
        return _fixed(data, a, b, Struct("<f"), FIXED32, wire)
    if number == 6:
        return _fixed(data, a, b, Struct("<d"), FIXED64, wire)
    if wire == VARINT:
        return [a]
    if wire != BYTES:
        return []
    values: list[int | float] = []
    while a < b and len(values) < 2:
        value, a = varint(data, a, b)
        values.append(value)
    return values


def _fixed(data: bytes, a: int, b: int, kind: Struct, single: int, wire: int) -> list[int | float]:
    if wire not in (single, BYTES):
        return []
    if (b - a) % kind.size:
        raise Malformed("packed numbers do not fill their field")
    return [kind.unpack_from(data, at)[0] for at in range(a, min(b, a + 2 * kind.size), kind.size)]


def _number(dtype: int, raw: int | float) -> float:
    if isinstance(raw, float):
        return raw
    if dtype == _BFLOAT16:
        return _bfloat16(raw)
    if dtype == _HALF:
        return float(_bits_to_float[3].unpack(_bits_to_float[2].pack(raw & 0xFFFF))[0])
    if dtype in _UNSIGNED:
        return float(raw)
    return float(bool(raw)) if dtype == 10 else float(signed(raw))


def _bfloat16(bits: int) -> float:
    """The upper half of a float32."""
    return float(_bits_to_float[1].unpack(_bits_to_float[0].pack((bits & 0xFFFF) << 16))[0])
