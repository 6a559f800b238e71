"""The terminal's keys: escape is a key of its own, whatever follows it, and nothing wakes while nobody types."""

import contextlib
import os
import selectors
import socket
from codecs import getincrementaldecoder
from collections.abc import Iterable
from typing import Any

from textual import events
from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

ESCAPE = "\x1b"
_OPENS_SEQUENCE = "[O"  # cursor and function keys, mouse, paste
_WORD_KEYS = "bf\x7f"  # with alt, in a line that is typed: a word back, a word on, rub out a word


class AltKey(events.Key):
    """Escape and a key behind it, or that key with alt: terminals send the same. Its name is what it is with alt."""

    def __init__(self, key: str, struck: events.Key) -> None:
        super().__init__(key, None)
        self.keys = (events.Key("escape", ESCAPE), struck)


class KeyParser(XTermParser):
    """Textual 8.2.8 takes a key that comes within 0.1 s of escape for that key with alt, and escape is lost."""

    @property
    def due_s(self) -> float | None:
        """Until what has come so far counts as whole; None where nothing waits."""
        return None if self._timeout_time is None else max(self._timeout_time - get_time(), 0.0)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        behind_escape = len(sequence) == 2 and sequence[0] == ESCAPE and sequence[1] not in _OPENS_SEQUENCE
        if not alt and not behind_escape:
            yield from super()._sequence_to_key_events(sequence)
            return
        struck = list(super()._sequence_to_key_events(sequence[-1]))
        if behind_escape and sequence[1] in _WORD_KEYS:
            named = next(iter(super()._sequence_to_key_events(sequence)))
            yield AltKey(named.key, struck[0])
        else:
            yield events.Key("escape", ESCAPE)
            yield from struck


class TerminalDriver(LinuxDriver):
    """Textual's wakes ten times a second to see whether it shall end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._wakes, self._wakened = socket.socketpair()
        self._wakened.setblocking(False)

    def run_input_thread(self) -> None:
        parser = KeyParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._wakened, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                ready = selector.select(parser.due_s)
                if any(key.fd == self.fileno for key, _ in ready):
                    data = os.read(self.fileno, 4096)
                    if not data:
                        return  # the terminal is gone
                    if text := decode(data):  # "" would be the end to the parser
                        self._heard(parser.feed(text))
                self._heard(parser.tick())

    def _heard(self, heard: Iterable[Any]) -> None:
        for message in heard:
            self.process_message(message)

    def disable_input(self) -> None:
        self._wakes.send(b"\0")
        super().disable_input()
        with contextlib.suppress(BlockingIOError):
            while self._wakened.recv(64):
                pass
