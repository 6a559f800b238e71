"""Who fell silent first."""

from agentd.core.autopsy import autopsy
from agentd.core.quiet import Quiet
from agentd.core.stall import RankSignals


def rank(number: int, log: float | None, cards: tuple[float | None, ...] = (), files: float | None = None):
    def quiet(seconds: float | None) -> Quiet | None:
        return None if seconds is None else Quiet(seconds, True)

    return f"n{number}", RankSignals(
        number, True, 4000.0, quiet(log), tuple(map(quiet, cards)), quiet(files), processor=None
    )


def test_the_first_to_fall_silent_is_named_first():
    said = autopsy([rank(0, 1900, (1850, 1860), 1880), rank(1, 2500, (2400, None), 2450), rank(2, 1900, (1820,))])
    assert said == (
        "rank 1 on n1 last used its cards 40 min ago; rank 0 on n0 last used its cards 30 min ago; "
        "rank 2 on n2 last used its cards 30 min ago"
    )


def test_what_was_never_seen_was_started():
    assert autopsy([rank(0, None)]) == "rank 0 on n0 last started 66 min ago"


def test_a_thousand_ranks_are_a_few_words():
    said = autopsy([rank(number, 2000 + number) for number in range(1000)])
    assert said.startswith("rank 999 on n999") and said.endswith("and 992 more ranks after them") and len(said) < 500
