"""How processes that are not our children ended, told by the kernel (proc connector; takes root).

An engine reports signal 9 and `exit 137` alike. Who must tell them apart asks the kernel.
"""

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Sequence

_NETLINK_CONNECTOR, _CN_IDX_PROC, _CN_VAL_PROC, _LISTEN = 11, 1, 1, 1
_SO_ATTACH_FILTER = 26
_EVENT_EXIT = 0x80000000
# Behind the netlink and the connector header: what, cpu, time stamp, then pid, tgid, wait status.
_WHAT_AT, _PID_AT = 36, 52
_BUFFER = 1 << 20


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


class ExitEvents:
    """statuses: wait status by pid, of every process first, of `pids` alone after `only`. Where the kernel tells
    nothing (no root, not built in) it stays empty."""

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self._socket: socket.socket | None = None
        try:
            self._socket = _listen()
        except OSError:
            return

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def move(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                # Too many at once for the buffer: some are missed, the next are heard.
                continue
            if len(data) >= _PID_AT + 12 and struct.unpack_from("=I", data, _WHAT_AT)[0] == _EVENT_EXIT:
                pid, tgid, status = struct.unpack_from("=iiI", data, _PID_AT)
                if pid == tgid:
                    self.statuses[pid] = status

    def only(self, pids: Sequence[int]) -> None:
        """The kernel drops all others, so that a busy host costs nothing."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            _attach(self._socket, pids)
        self.move()
        self.statuses = {pid: status for pid, status in self.statuses.items() if pid in pids}

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _listen() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        made.bind((0, _CN_IDX_PROC))
        order = struct.pack("=I", _LISTEN)
        message = struct.pack("=IIIIHH", _CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(order), 0) + order
        made.send(struct.pack("=IHHII", 16 + len(message), 3, 0, 0, os.getpid()) + message)
    except BaseException:
        made.close()
        raise
    return made


def _attach(to: socket.socket, pids: Sequence[int]) -> None:
    """Classic BPF: event is an exit, and its pid is one of `pids`. Words are loaded in network order."""
    load, equal, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, _WHAT_AT), (equal, 0, len(pids) + 1, socket.htonl(_EVENT_EXIT)), (load, 0, 0, _PID_AT)]
    program += [(equal, len(pids) - number, 0, socket.htonl(pid)) for number, pid in enumerate(pids)]
    program += [(give, 0, 0, 0), (give, 0, 0, 0xFFFFFFFF)]
    code = (_Instruction * len(program))(*(_Instruction(*words) for words in program))
    whole = _Filter(len(program), ctypes.cast(code, ctypes.POINTER(_Instruction)))
    to.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(whole))
