from dataclasses import replace

from agentd.core.alert_book import Alert, AlertBook

STALL = Alert("stalled", "tg-1", 2, "critical", "no step for 4 min", "look", since_ms=1000)


def test_rises_once_and_clears_once():
    book = AlertBook()
    assert book.update(2000, [STALL], {}) == [STALL]
    assert book.update(4000, [replace(STALL, text="no step for 5 min", since_ms=1003)], {}) == []
    (raised,) = book.raised()
    assert (raised.text, raised.since_ms) == ("no step for 5 min", 1000)
    (cleared,) = book.update(6000, [], {})
    assert (cleared.state, cleared.cleared_ms) == ("cleared", 6000)
    assert book.raised() == [] and book.cleared() == [cleared]
    assert book.update(8000, [], {}) == []


def test_what_cannot_be_judged_neither_rises_nor_clears():
    book = AlertBook()
    assert book.update(1000, [], {STALL.key: "cannot judge"}) == []
    book.update(2000, [STALL], {})
    assert book.update(3000, [], {STALL.key: "cannot judge: nothing is heard of rank 1"}) == []
    (raised,) = book.raised()
    assert raised.text.startswith("cannot judge") and raised.since_ms == 1000


def test_attempts_are_apart():
    book = AlertBook()
    book.update(1000, [STALL], {})
    changed = book.update(2000, [replace(STALL, attempt=3)], {})
    assert [(alert.attempt, alert.state) for alert in changed] == [(2, "cleared"), (3, "raised")]


def test_cleared_ones_are_kept_for_an_hour_and_not_without_end():
    book = AlertBook()
    for at in range(300):
        book.update(at, [replace(STALL, group_id=f"tg-{at}")], {})
    assert len(book.cleared()) == 200
    book.update(3_700_000, [], {})
    assert [alert.group_id for alert in book.cleared()] == ["tg-299"]
