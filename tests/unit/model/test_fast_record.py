"""A fast record behaves like a frozen one, except that it can be changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace

from keepai.model.fast_record import fast_record


@dataclass(frozen=True)
class Guarded:
    """One of each kind of field."""

    name: str
    size: int = 1
    said: str | None = field(default=None, compare=False, repr=False)
    parts: list[str] = field(default_factory=list, compare=False)


@fast_record
@dataclass(frozen=True)
class Light:
    """The same."""

    name: str
    size: int = 1
    said: str | None = field(default=None, compare=False, repr=False)
    parts: list[str] = field(default_factory=list, compare=False)


def test_a_light_record_has_the_fields_the_text_and_the_equality_of_a_frozen_one() -> None:
    for kind in (Guarded, Light):
        one, other = kind("a", said="x", parts=["p"]), kind("a")
        assert (one == other, hash(one) == hash(other), one == kind("a", 2)) == (True, True, False)
        assert repr(one) == f"{kind.__name__}(name='a', size=1, parts=['p'])"
        assert asdict(replace(one, size=3)) == {"name": "a", "size": 3, "said": "x", "parts": ["p"]}
        assert one.parts is not kind("b").parts
        assert [(f.name, f.compare, f.repr) for f in fields(kind)] == [
            ("name", True, True), ("size", True, True), ("said", False, False), ("parts", False, True),
        ]


def test_two_kinds_of_the_same_fields_are_not_equal() -> None:
    assert Light("a") != Guarded("a")  # type: ignore[comparison-overlap]


def test_a_field_that_must_be_given_has_no_default() -> None:
    assert not hasattr(Light, "name")
    assert not hasattr(Light, "parts")
    assert Light.size == 1
