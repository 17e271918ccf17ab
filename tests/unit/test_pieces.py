"""A text and the places of its large parts: each place holds exactly the value that its path names."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from keepai.model.codec import encode, stored
from keepai.runtime.base import LARGE
from keepai.runtime.event_texts import in_pieces, listed, shown, with_events

VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=5) | st.sampled_from(["x" * 3000, "é" * 2500, '"\\' * 1500]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4), max_leaves=12,
)


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@given(VALUES)
def test_the_text_is_that_of_the_value_and_each_place_holds_a_large_part(value: Any) -> None:
    text, cuts = in_pieces(value)
    assert text == encode(value)
    ends = [0]
    for path, start, end in cuts:
        assert stored(text[start:end]) == at(value, path)
        assert end - start > LARGE
        assert start >= ends[-1]
        ends.append(end)


@given(st.lists(st.tuples(st.text(max_size=3), VALUES), max_size=4), st.integers(1, 40))
def test_events_stand_behind_what_prepare_returned(events: list[tuple[str, Any]], times: int) -> None:
    made = [shown("t", message_id, encode(payload)) for message_id, payload in events] * times
    wanted = [{"messageId": message_id, "payload": payload, "topic": "t"} for message_id, payload in events] * times
    assert stored(listed(made)[0]) == wanted
    text, cuts = with_events('{"reservations":[],"data":1}', made)
    whole: Any = stored(text)
    assert whole == {"reservations": [], "data": 1, "events": wanted}
    for path, start, end in cuts:
        assert stored(text[start:end]) == at(whole, path)
    assert len(text) - sum(end - start for _, start, end in cuts) <= 2 * LARGE
