"""Ids: one number and one text for each, in the same order, and no other text is an id."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepai.model import ids
from keepai.model.clock import Ids
from keepai.model.ids import CHANCE_BITS, KIND_BITS, KINDS, MS_BITS, number_of, range_of, text_of
from keepai.testing import ManualClock

PREFIXES = st.sampled_from(sorted(KINDS))
MADE = st.integers(0, (1 << MS_BITS + CHANCE_BITS) - 1)  # an id without the bits of its kind
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def number(prefix: str, made: int) -> int:
    return made << KIND_BITS | KINDS[prefix][0]


@given(PREFIXES, MADE)
@example("wf", 0)
@example("fix", (1 << MS_BITS + CHANCE_BITS) - 1)
def test_an_id_and_its_number_lead_to_each_other(prefix: str, made: int) -> None:
    ids._numbers.clear()
    ids._texts.clear()
    text = text_of(number(prefix, made))
    assert text.startswith(f"{prefix}_")
    assert len(text) == len(prefix) + 13
    ids._numbers.clear()
    ids._texts.clear()
    assert number_of(text) == number(prefix, made) < 1 << 63


@given(PREFIXES, MADE, MADE)
def test_ids_of_a_kind_sort_as_their_numbers_do(prefix: str, one: int, other: int) -> None:
    first, second = number(prefix, one), number(prefix, other)
    assert (text_of(first) < text_of(second)) == (first < second)


@given(st.text() | st.builds("{}_{}".format, PREFIXES, st.text(DIGITS + "ilou _+-٣", min_size=10, max_size=14)))
@example("run_nope")
@example("")
@example("run_")
@example("run_g00000000000")  # more than 59 bits
@example("run_3 wdc9x80w5b")
@example("run_3_wdc9x80w5b")
@example("run_+6wdc9x80w5b")
@example("run_36wdc9x80w5B")
@example("run_36wdc9x80w5o")
@example("RUN_36wdc9x80w5b")
@example("rum_36wdc9x80w5b")
@example("run_٣6wdc9x80w5b")
@example(" run_36wdc9x80w5b")
@example("run_36wdc9x80w5b\n")
@example("run_\ud80036wdc9x80w5")
def test_a_text_is_the_id_of_one_number_or_of_none(text: str) -> None:
    found = number_of(text)
    assert found is None or text_of(found) == text


@pytest.mark.parametrize("text", [
    "run_nope", "", "run_", "run_g00000000000", "run_3 wdc9x80w5b", "run_36wdc9x80w5B", "run_36wdc9x80w5o",
    "RUN_36wdc9x80w5b", "rum_36wdc9x80w5b", "run_٣6wdc9x80w5b", "run_36wdc9x80w5b\n", "run_036wdc9x80w5b",
])
def test_a_damaged_id_is_no_id(text: str) -> None:
    assert number_of(text) is None
    assert number_of("run_36wdc9x80w5b") is not None


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_number_can_be_shown_and_one_that_is_no_id_is_not_shown_as_one(value: int) -> None:
    assert number_of(text_of(value)) in (value, None)


def test_the_kinds_are_told_apart_and_their_numbers_never_change() -> None:
    assert {prefix: kind for prefix, (kind, _) in KINDS.items()} == {
        "wf": 1, "hst": 2, "run": 3, "evt": 4, "inp": 5, "mut": 6, "itm": 7, "apr": 8, "fix": 9, "prp": 10}
    assert set(DIGITS) <= set(string.digits + string.ascii_lowercase)


@given(PREFIXES, MADE, st.integers(0, 12))
def test_the_ids_that_begin_so_lie_between_the_first_and_the_last(prefix: str, made: int, cut: int) -> None:
    text = text_of(number(prefix, made))
    beginning = text[: len(prefix) + 1 + cut]
    ends = range_of(beginning)
    assert ends is not None
    first, last = map(number_of, ends)
    assert first is not None
    assert last is not None
    assert first <= number(prefix, made) <= last
    assert all(end.startswith(beginning) for end in ends)
    assert [text_of(next_).startswith(beginning) for next_ in (first - 16, last + 16)] == [False, False]


@pytest.mark.parametrize("beginning", ["run_z", "run_u", "run_36wdc9x80w5b0", "rum_3", "run", "", "3", "run_ "])
def test_nothing_begins_with_what_no_id_begins_with(beginning: str) -> None:
    assert range_of(beginning) is None


def test_what_was_converted_lately_is_remembered_within_bounds() -> None:
    for made in range(3 * ids._KNOWN_MAX):
        text_of(number("evt", made))
        assert len(ids._texts) == len(ids._numbers) <= ids._KNOWN_MAX


@given(st.lists(st.tuples(st.sampled_from(["advance", "jump"]), st.integers(-10**6, 10**6)), max_size=30))
def test_each_new_id_is_higher_than_all_before_also_when_the_clock_is_set_back(steps: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    source, made = Ids(clock), []
    for step, ms in steps:
        clock.advance(ms=abs(ms)) if step == "advance" else clock.jump(ms=ms)
        made += [number_of(source.new(prefix)) for prefix in ("run", "evt", "run")]
    assert None not in made
    assert len(set(made)) == len(made)
    assert [each >> KIND_BITS for each in made if each] == sorted(each >> KIND_BITS for each in made if each)


def test_more_ids_of_one_moment_than_it_has_room_for_go_on_in_the_next() -> None:
    clock = ManualClock()
    source = Ids(clock)
    made = [source.new("evt") for _ in range(10_000)]
    assert made == sorted(set(made))
    assert len({each[:-2] for each in made}) == len(made), "each is known without its last two digits"
    clock.advance(ms=1)
    assert source.new("evt") > made[-1]


@pytest.mark.parametrize("years", [-60, 300, 7_000])
def test_a_clock_that_is_out_of_its_mind_is_not_followed(years: int) -> None:
    clock = ManualClock()
    source = Ids(clock)
    before = source.new("run")
    clock.jump(days=365 * years)
    mad = source.new("run")
    clock.jump(days=-365 * years)
    clock.advance(ms=2)
    assert before < mad < source.new("run")


def test_a_source_goes_on_behind_the_newest_id_of_its_ledger() -> None:
    clock = ManualClock()
    first, second = Ids(clock), Ids(clock)
    clock.advance(minutes=5)
    newest = [first.new("run") for _ in range(5)][-1]
    clock.jump(minutes=-5)
    second.go_on_from(newest)
    assert number_of(second.new("evt")) > number_of(newest)  # type: ignore[operator]
