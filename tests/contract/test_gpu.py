"""The contract of card adapters: usable cards by a name that stays, faults by the same name, and one sentence."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agentd.core.telemetry_blob import CardNow
from agentd.gpu.base import GpuAdapter, GpuSetupRefused
from agentd.gpu.choice import CardHold, choose_gpus
from agentd.gpu.nvml import NvmlGpus
from schemas.limits import GPUS_PER_NODE_MAX

pynvml = pytest.importorskip("pynvml")
NOW_S = 1_800_000_000.0


class Driver:
    """NVML as a host shows it, with the real module's own errors. cards: uuid by slot, or an error code there."""

    NVMLError = pynvml.NVMLError
    NVML_ERROR_LIBRARY_NOT_FOUND = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    NVML_ERROR_DRIVER_NOT_LOADED = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH

    def __init__(self, *cards: str | int) -> None:
        self.cards = list(cards)
        self.init_error: int | None = None
        self.opened = 0
        self.unsupported: set[str] = set()

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise pynvml.NVMLError(self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        card = self.cards[index]
        if isinstance(card, int):
            raise pynvml.NVMLError(card)
        return card

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=81559 << 20, used=70_000 << 20)

    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.cards:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def _told(self, what: str, value: Any) -> Any:
        if what in self.unsupported:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return self._told("util", SimpleNamespace(gpu=93, memory=40))

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return int(self._told("temperature", 61))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return int(self._told("power", 640_500))


def nvml(driver: Driver, *only: str) -> NvmlGpus:
    return NvmlGpus(only, lambda: driver, lambda: NOW_S)


ADAPTERS: dict[str, Callable[[], GpuAdapter]] = {
    "simulated": lambda: choose_gpus("simulated:2xH100-80GB", "node-a"),
    "nvml": lambda: nvml(Driver("GPU-a", "GPU-b")),
}


@pytest.mark.parametrize("make", ADAPTERS.values(), ids=ADAPTERS)
def test_every_adapter_names_its_cards_for_good_and_in_order(make: Callable[[], GpuAdapter]) -> None:
    first, second = make(), make()
    cards = list(first.inventory())
    assert [card.index for card in cards] == [0, 1]
    assert len({card.uuid for card in cards}) == 2
    assert all(card.uuid and card.type and card.memory_mb > 80_000 for card in cards)
    assert list(first.inventory()) == cards
    assert list(second.inventory()) == cards
    assert first.faults == {}
    assert first.state.startswith("2 ")
    first.close()
    first.close()
    assert list(first.inventory()) == cards


@pytest.mark.parametrize("make", [*ADAPTERS.values(), lambda: choose_gpus("none", "node-a")], ids=[*ADAPTERS, "none"])
def test_every_adapter_says_which_it_is(make: Callable[[], GpuAdapter]) -> None:
    assert make().backend in ("simulated", "nvml", "none")


def test_simulated_cards_are_marked_and_differ_from_node_to_node() -> None:
    here = choose_gpus("simulated:2xH100-80GB,1xA100", "node-a")
    there = choose_gpus("simulated:2xH100-80GB,1xA100", "node-b")
    assert [card.type for card in here.inventory()] == ["H100-80GB", "H100-80GB", "A100"]
    assert all(card.uuid.startswith("SIM-") for card in here.inventory())
    assert not {card.uuid for card in here.inventory()} & {card.uuid for card in there.inventory()}
    assert "simulated" in here.state


@pytest.mark.parametrize(
    "setting",
    ["", "nvidia", "simulated", "simulated:", "simulated:x", "simulated:0xH100", "simulated:-1xH100", "simulated:2x",
     "simulated:2xH100;rm", f"simulated:{GPUS_PER_NODE_MAX + 1}xH100", "none:1", "simulated:2xH100,"],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_is_refused_with_an_example(setting: str) -> None:
    with pytest.raises(GpuSetupRefused, match="--gpus"):
        choose_gpus(setting, "node-a")


def test_without_the_module_or_the_library_or_the_driver_the_state_says_so() -> None:
    def missing() -> Any:
        raise ImportError

    assert NvmlGpus(load=missing).inventory() == ()
    for code, words in [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver: libnvidia-ml.so.1"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "no NVIDIA driver: its kernel module"),
        (pynvml.NVML_ERROR_UNKNOWN, "no NVIDIA driver: "),
    ]:
        driver = Driver()
        driver.init_error = code
        adapter = nvml(driver)
        assert list(adapter.inventory()) == []
        assert adapter.state.startswith(words)
        assert adapter.faults == {}


def test_on_this_host_the_real_library_answers_or_is_said_to_be_missing() -> None:
    adapter = choose_gpus("nvml", "node-a")
    cards = adapter.inventory()
    assert bool(cards) != adapter.state.startswith("no NVIDIA driver")
    adapter.close()


def test_a_card_off_the_bus_is_a_fault_by_its_name_and_the_others_stay() -> None:
    driver = Driver("GPU-a", "GPU-b", "GPU-c")
    adapter = nvml(driver)
    adapter.inventory()
    driver.cards[1] = pynvml.NVML_ERROR_GPU_IS_LOST
    assert [card.uuid for card in adapter.inventory()] == ["GPU-a", "GPU-c"]
    assert list(adapter.faults) == ["GPU-b"]
    assert "GPU is lost" in adapter.faults["GPU-b"]
    assert "since 2027-01-15T08:00:00Z" in adapter.faults["GPU-b"]
    driver.cards[1] = "GPU-b"
    assert len(adapter.inventory()) == 3
    assert adapter.faults == {}


def test_a_card_keeps_its_name_when_the_slots_move_and_a_missing_one_is_told() -> None:
    driver = Driver("GPU-a", "GPU-b", "GPU-c")
    adapter = nvml(driver)
    adapter.inventory()
    driver.cards = ["GPU-b", "GPU-c"]
    assert [(card.uuid, card.index) for card in adapter.inventory()] == [("GPU-b", 0), ("GPU-c", 1)]
    assert list(adapter.faults) == ["GPU-a"]


def test_a_driver_upgraded_under_running_programs_is_no_host_without_cards() -> None:
    driver = Driver("GPU-a", "GPU-b")
    adapter = nvml(driver)
    adapter.inventory()
    adapter.close()
    driver.init_error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert list(adapter.inventory()) == []
    assert adapter.state.startswith("GPU driver mismatch, reboot needed")
    assert list(adapter.faults) == ["GPU-a", "GPU-b"]
    assert driver.opened == 0


def test_only_the_cards_that_were_named_are_used_whatever_the_agent_s_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    adapter = nvml(Driver("GPU-a", "GPU-b", "GPU-c"), "GPU-b", "GPU-x")
    assert [(card.uuid, card.index) for card in adapter.inventory()] == [("GPU-b", 1)]
    assert list(adapter.faults) == ["GPU-x"]


def test_two_agents_cannot_have_one_card() -> None:
    first, second = CardHold(), CardHold()
    first.take(["GPU-test-a", "GPU-test-b"])
    first.take(["GPU-test-b", "GPU-test-c"])
    with pytest.raises(GpuSetupRefused, match="GPU-test-c is used by another agent"):
        second.take(["GPU-test-d", "GPU-test-c"])
    first.take(["GPU-test-d"])
    first.close()
    second.take(["GPU-test-a", "GPU-test-b", "GPU-test-c", "GPU-test-d"])
    second.close()


@pytest.mark.parametrize("make", ADAPTERS.values(), ids=ADAPTERS)
def test_every_adapter_samples_the_cards_it_named(make: Callable[[], GpuAdapter]) -> None:
    adapter = make()
    cards = [card.uuid for card in adapter.inventory()]
    assert [sample.uuid for sample in adapter.sample({})] == cards
    adapter.close()


def test_a_sample_of_a_card() -> None:
    adapter = nvml(Driver("GPU-a"))
    adapter.inventory()
    assert adapter.sample({"GPU-a": 5.0}) == [CardNow("GPU-a", 93.0, 70_000, 61, 640.5)]


def test_what_a_card_does_not_tell_is_unknown_and_takes_nothing_else_away() -> None:
    driver = Driver("GPU-a", "GPU-b")
    adapter = nvml(driver)
    adapter.inventory()
    driver.unsupported = {"util", "power"}  # as under MIG
    driver.cards = ["GPU-a"]
    assert adapter.sample({}) == [CardNow("GPU-a", None, 70_000, 61, None), CardNow("GPU-b")]
    adapter.close()
    assert adapter.sample({}) == [CardNow("GPU-a"), CardNow("GPU-b")]


def test_a_simulated_card_is_as_busy_as_the_processor_of_its_task() -> None:
    adapter = choose_gpus("simulated:3xH100", "node-a")
    busy, blind, free = (card.uuid for card in adapter.inventory())
    utils = {sample.uuid: sample.util for sample in adapter.sample({busy: 250.0, blind: None})}
    assert utils == {busy: 100.0, blind: None, free: 0.0}
