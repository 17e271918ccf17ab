"""No character of a text can hide from its reader."""

import pytest

from keepai.model.visible_text import described, visible


@pytest.mark.parametrize(
    "hidden",
    [
        "\u202e",
        "\u2066",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\u00ad",
        "\x00",
        "\x1b",
        "\r",
        "\t",
        "\u2028",
        "\u00a0",
        "\u3164",
        "\u2800",
        "\ufe0f",
        "\U000e0041",
        "\U000e0101",
        "\u034f",
        "\ud800",
        "\ue000",
    ],
)
def test_hidden_characters_are_spelled_out(hidden: str) -> None:
    assert visible(f"a{hidden}b") == f"a‹U+{ord(hidden):04X}›b"


@pytest.mark.parametrize("plain", ["Hello, world", "Grüße ✓ 漢字 👍", "two\nlines", ""])
def test_ordinary_text_stays_as_it_is(plain: str) -> None:
    assert visible(plain) == plain


def test_a_call_is_described_on_one_line_in_full() -> None:
    text = described("a.b", {"z": "x" * 10_000, "a": [1, None, {"k": "v\n\u202e"}], "k\n": "\x85"})
    assert "\n" not in text
    assert described("a.b", {'to="boss", x': 1}) == 'a.b: "to=\\"boss\\", x"=1'
    assert "x" * 10_000 in text
    assert "‹U+202E›" in text
    assert text.startswith('a.b: a=[1,null,{"k":"v\\n‹U+202E›"}]')


def test_a_call_without_params_is_its_name() -> None:
    assert described("a.b", {}) == "a.b"
