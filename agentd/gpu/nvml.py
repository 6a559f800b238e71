"""NVIDIA cards by NVML. Nothing raises for a missing or sick driver: the host then has no usable card and says why.

CUDA_VISIBLE_DEVICES of the agent's own environment is not looked at: which cards are ours is said by --gpus alone.
"""

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from agentd.core.telemetry_blob import CardNow
from agentd.gpu.base import Gpu

_MISMATCH = "GPU driver mismatch, reboot needed"


class NvmlGpus:
    """only: uuids to use, all where empty. load: gives the module pynvml, raises ImportError where there is none."""

    backend = "nvml"

    def __init__(
        self,
        only: Sequence[str] = (),
        load: Callable[[], Any] | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._only = frozenset(only)
        self._load = load or _load_pynvml
        self._now_s = now_s
        self._library: Any = None
        self._known: dict[str, Gpu] = {}
        self._faults: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._state = "the GPUs of this host have not been looked at yet"

    @property
    def faults(self) -> Mapping[str, str]:
        return dict(self._faults)

    @property
    def state(self) -> str:
        return self._state

    def inventory(self) -> Sequence[Gpu]:
        trouble = self._open()
        if trouble is not None:
            return self._all_lost(trouble)
        try:
            cards, unread = self._read_cards()
        except self._library.NVMLError as error:
            self.close()
            return self._all_lost(self._explain(error))
        self._known.update((card.uuid, card) for card in cards)
        self._note_faults({card.uuid for card in cards}, unread[0] if unread else "not listed by the driver any more")
        self._state = _sentence(cards, self._faults, unread)
        return cards

    def sample(self, cpu_percent: Mapping[str, float | None]) -> Sequence[CardNow]:
        library = self._library
        if library is None:
            return [CardNow(uuid) for uuid in sorted(self._known)]
        return [self._sample_card(library, card) for card in self._known.values()]

    def _sample_card(self, library: Any, card: Gpu) -> CardNow:
        """One question that the card does not answer (MIG has no utilisation) takes the others' answers not away."""
        try:
            handle = library.nvmlDeviceGetHandleByUUID(card.uuid)
        except library.NVMLError:
            return CardNow(card.uuid)

        def ask(question: Callable[[], float]) -> float | None:
            try:
                return float(question())
            except (library.NVMLError, AttributeError):
                return None

        util = ask(lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu)
        memory = ask(lambda: library.nvmlDeviceGetMemoryInfo(handle).used)
        temperature = ask(lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU))
        power = ask(lambda: library.nvmlDeviceGetPowerUsage(handle))
        return CardNow(
            card.uuid,
            util,
            None if memory is None else int(memory) >> 20,
            None if temperature is None else int(temperature),
            None if power is None else power / 1000.0,
        )

    def close(self) -> None:
        """Given up also where the driver hangs: it is asked anew with the next inventory."""
        library, self._library = self._library, None
        if library is not None:
            try:
                library.nvmlShutdown()
            except library.NVMLError as error:
                self._state = self._explain(error)

    def _open(self) -> str | None:
        if self._library is not None:
            return None
        try:
            library = self._load()
        except ImportError:
            return "no NVIDIA driver: the Python module pynvml is not installed (pip install nvidia-ml-py)"
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            return _init_trouble(library, error)
        self._library = library
        return None

    def _read_cards(self) -> tuple[list[Gpu], list[str]]:
        library = self._library
        cards: list[Gpu] = []
        unread: list[str] = []
        for index in range(int(library.nvmlDeviceGetCount())):
            try:
                handle = library.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(library.nvmlDeviceGetUUID(handle))
                if self._only and uuid not in self._only:
                    continue
                memory_mb = int(library.nvmlDeviceGetMemoryInfo(handle).total) >> 20
                cards.append(Gpu(uuid, _short(_text(library.nvmlDeviceGetName(handle))), memory_mb, index))
            except library.NVMLError as error:
                unread.append(f"card {index}: {error}")
        return cards, unread

    def _all_lost(self, trouble: str) -> Sequence[Gpu]:
        self._note_faults(set(), trouble)
        self._state = trouble
        return ()

    def _note_faults(self, usable: set[str], why: str) -> None:
        now_s = self._now_s()
        wanted = self._known.keys() | self._only
        for uuid in usable:
            self._since.pop(uuid, None)
        for uuid in wanted - usable:
            self._since.setdefault(uuid, now_s)
        self._faults = {
            uuid: f"{why} (since {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(self._since[uuid]))})"
            for uuid in sorted(wanted - usable)
        }

    def _explain(self, error: Exception) -> str:
        return f"the NVIDIA driver does not answer: {error}"


def _load_pynvml() -> ModuleType:
    return importlib.import_module("pynvml")


def _init_trouble(library: Any, error: Any) -> str:
    code = getattr(error, "value", None)
    if code == library.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "no NVIDIA driver: libnvidia-ml.so.1 is not on this host"
    if code == library.NVML_ERROR_DRIVER_NOT_LOADED:
        return "no NVIDIA driver: its kernel module is not loaded"
    if code == library.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return f"{_MISMATCH}: the driver was upgraded under running programs ({error})"
    return f"no NVIDIA driver: {error}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _short(name: str) -> str:
    """`NVIDIA H100 80GB HBM3` -> `H100-80GB-HBM3`: one word, as people write it in a request."""
    return "-".join(word for word in name.split() if word.upper() not in ("NVIDIA", "TESLA", "GEFORCE"))


def _sentence(cards: Sequence[Gpu], faults: Mapping[str, str], unread: Sequence[str]) -> str:
    text = f"{len(cards)} NVIDIA cards usable"
    if faults:
        text += f", {len(faults)} not: " + "; ".join(f"{uuid} {why}" for uuid, why in faults.items())
    elif unread:
        text += ", not readable: " + "; ".join(unread)
    return text
