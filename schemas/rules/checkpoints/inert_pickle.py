"""The facts of a pickle, without unpickling: a machine that knows the opcodes and nothing else.

No class is looked up and nothing is called: a global, an object and the result of a call are all the same empty `Node`.
Bounded in bytes and in opcodes, and each opcode makes one small object at most, so a hostile file costs little. Nothing
of the file is ever hashed but texts, since hashing what is nested deep enough overflows the C stack.
"""

import struct
from array import array
from collections.abc import Callable
from typing import Any

BYTES_MAX = 16 << 20
OPCODES_MAX = 2_000_000


class NoPickle(Exception):
    """Is raised over what is cut short, damaged, or of a kind that no checkpoint metadata is."""


class TooLarge(NoPickle):
    """Is raised over more bytes or opcodes than are looked at."""


class Node:
    """Anything but a text, number, None or tuple. fields: by text key, of a dict or of an object's state; values: in
    order, of a dict's other keys, of a list or set."""

    __slots__ = ("_fields", "_values")

    def __init__(self) -> None:
        # Made when needed: a hostile file can ask for millions of nodes.
        self._fields: dict[str, Any] | None = None
        self._values: list[Any] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        if self._fields is None:
            self._fields = {}
        return self._fields

    @property
    def values(self) -> list[Any]:
        if self._values is None:
            self._values = []
        return self._values


class _Machine:
    def __init__(self, data: bytes, texts: "array[int]") -> None:
        self.data, self.at, self.texts = data, 0, texts
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, operations = self.data, _OPERATIONS
        for _ in range(OPCODES_MAX):
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            operation = operations[code]
            if operation is None:
                raise NoPickle(f"opcode {code:#x} at byte {self.at - 1}")
            operation(self)
        raise TooLarge(f"more than {OPCODES_MAX} opcodes")

    def take(self, count: int) -> bytes:
        taken = self.data[self.at : self.at + count]
        if len(taken) < count:
            raise NoPickle("cut short")
        self.at += count
        return taken

    def uint(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def line(self) -> bytes:
        end = self.data.index(b"\n", self.at)
        taken = self.data[self.at : end]
        self.at = end + 1
        return taken

    def to_mark(self) -> list[Any]:
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def replace(self, count: int) -> None:
        """The uppermost `count` objects make one of which nothing is known."""
        if count > len(self.stack):
            raise NoPickle("empty stack")
        del self.stack[len(self.stack) - count :]
        self.stack.append(Node())

    def node(self) -> Node:
        top = self.stack[-1]
        return top if isinstance(top, Node) else Node()

    def set_items(self, pairs: list[Any]) -> None:
        node = self.node()
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) is str:
                node.fields[key] = value
            else:
                node.values.append(value)

    def build(self) -> None:
        state = self.stack.pop()
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, Node):
                self.node().fields.update(part.fields)


def read_facts(data: bytes, texts: "array[int] | None" = None) -> Node:
    """The outermost object of a pickle of protocol 2 to 5. texts: takes where in `data` each text begins and ends.
    Raises NoPickle."""
    if len(data) > BYTES_MAX:
        raise TooLarge(f"more than {BYTES_MAX} bytes")
    if data[:1] != b"\x80":
        raise NoPickle("no pickle of protocol 2 or later")
    try:
        found = _Machine(data, array("Q") if texts is None else texts).run()
    except (IndexError, ValueError, KeyError, UnicodeDecodeError, struct.error) as error:
        raise NoPickle("cut short or damaged") from error
    if not isinstance(found, Node):
        raise NoPickle("no object")
    return found


_Operation = Callable[[_Machine], None]


def _push(value: Any) -> _Operation:
    return lambda m: m.stack.append(value)


def _number(count: int) -> _Operation:
    return lambda m: m.stack.append(m.uint(count))


def _text(count: int) -> _Operation:
    def push(m: _Machine) -> None:
        text = m.take(m.uint(count))
        m.texts.append(m.at - len(text))
        m.texts.append(m.at)
        m.stack.append(text.decode("utf-8", "surrogatepass"))

    return push


def _bytes(count: int) -> _Operation:
    def push(m: _Machine) -> None:
        m.take(m.uint(count))
        m.stack.append(None)

    return push


def _long(count: int) -> _Operation:
    def push(m: _Machine) -> None:
        digits = m.take(m.uint(count))
        # Sizes and offsets fit 64 bits; what does not is none.
        m.stack.append(int.from_bytes(digits, "little", signed=True) if len(digits) <= 9 else None)

    return push


def _memo_put(count: int) -> _Operation:
    def put(m: _Machine) -> None:
        m.memo[m.uint(count)] = m.stack[-1]

    return put


def _memo_get(count: int) -> _Operation:
    return lambda m: m.stack.append(m.memo[m.uint(count)])


def _objects(count: int) -> _Operation:
    return lambda m: m.replace(count)


def _tuple(count: int) -> _Operation:
    def make(m: _Machine) -> None:
        if count > len(m.stack):
            raise NoPickle("empty stack")
        taken = tuple(m.stack[len(m.stack) - count :]) if count else ()
        del m.stack[len(m.stack) - count :]
        m.stack.append(taken)

    return make


def _new_node(m: _Machine) -> None:
    m.stack.append(Node())


def _global(m: _Machine) -> None:
    m.line()
    m.line()
    m.stack.append(Node())


def _mark(m: _Machine) -> None:
    m.marks.append(len(m.stack))


def _set_item(m: _Machine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    m.set_items([key, value])


def _append(m: _Machine) -> None:
    value = m.stack.pop()
    m.node().values.append(value)


def _extend(m: _Machine) -> None:
    taken = m.to_mark()
    m.node().values.extend(taken)


def _collect_list(m: _Machine) -> None:
    taken, node = m.to_mark(), Node()
    node.values.extend(taken)
    m.stack.append(node)


def _collect_dict(m: _Machine) -> None:
    taken = m.to_mark()
    m.stack.append(Node())
    m.set_items(taken)


def _collect_object(m: _Machine) -> None:
    m.to_mark()
    m.stack.append(Node())


def _operations() -> list[_Operation | None]:
    table: dict[int, _Operation] = {
        0x80: lambda m: void(m.take(1)),  # PROTO
        0x95: lambda m: void(m.take(8)),  # FRAME
        0x28: _mark,
        0x30: lambda m: void(m.stack.pop()),  # POP
        0x31: lambda m: void(m.to_mark()),  # POP_MARK
        0x32: lambda m: m.stack.append(m.stack[-1]),  # DUP
        0x4E: _push(None),
        0x88: _push(True),
        0x89: _push(False),
        0x4B: _number(1),
        0x4D: _number(2),
        0x4A: lambda m: m.stack.append(int.from_bytes(m.take(4), "little", signed=True)),  # BININT
        0x47: lambda m: m.stack.append(struct.unpack(">d", m.take(8))[0]),  # BINFLOAT
        0x8A: _long(1),
        0x8B: _long(4),
        0x8C: _text(1),
        0x58: _text(4),
        0x8D: _text(8),
        0x43: _bytes(1),
        0x42: _bytes(4),
        0x8E: _bytes(8),
        0x96: _bytes(8),  # BYTEARRAY8
        0x55: _bytes(1),  # SHORT_BINSTRING
        0x54: _bytes(4),  # BINSTRING
        0x5D: _new_node,
        0x7D: _new_node,
        0x8F: _new_node,
        0x29: _push(()),
        0x85: _tuple(1),
        0x86: _tuple(2),
        0x87: _tuple(3),
        0x74: lambda m: m.stack.append(tuple(m.to_mark())),
        0x6C: _collect_list,
        0x64: _collect_dict,
        0x91: _collect_list,  # FROZENSET
        0x61: _append,
        0x65: _extend,
        0x90: _extend,  # ADDITEMS
        0x73: _set_item,
        0x75: lambda m: m.set_items(m.to_mark()),
        0x63: _global,
        0x93: _objects(2),  # STACK_GLOBAL
        0x52: _objects(2),  # REDUCE
        0x81: _objects(2),  # NEWOBJ
        0x92: _objects(3),  # NEWOBJ_EX
        0x6F: _collect_object,
        0x62: lambda m: m.build(),
        0x94: lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),  # MEMOIZE
        0x71: _memo_put(1),
        0x72: _memo_put(4),
        0x68: _memo_get(1),
        0x6A: _memo_get(4),
    }
    return [table.get(code) for code in range(256)]


def void(value: object) -> None:
    """What was taken is not needed."""


_OPERATIONS = _operations()
