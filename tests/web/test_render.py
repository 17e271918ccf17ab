"""Whatever comes from outside is written into a page so that it shows, and does nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import TemplateAssertionError
from jinja2.exceptions import UndefinedError

from keepai.doors.web.render import Assets, environment

TEMPLATES = sorted((Path(environment.__code__.co_filename).parent / "templates").glob("*.html"))
PAGES = environment(Assets(), {"run_": "/runs/{id}"})


def made(template: str, **context: object) -> str:
    return PAGES.from_string(template).render(now_ms=0, **context)


@pytest.mark.parametrize(("text", "shown"), [
    ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
    ('" onload="x', "&#34; onload=&#34;x"),
    ("a\u202eb", "a‹U+202E›b"),
    ("a\u2066b\u2069", "a‹U+2066›b‹U+2069›"),
    ("zero\u200bwidth\u00ad", "zero‹U+200B›width‹U+00AD›"),
    ("\x1b[31m\x00", "‹U+001B›[31m‹U+0000›"),
    ("tag\U000e0041", "tag‹U+E0041›"),
    ("half \ud800", "half ‹U+D800›"),
])
def test_a_text_shows_everything_that_is_in_it(text: str, shown: str) -> None:
    assert made("{{ x }}", x=text) == shown
    assert made('<a title="{{ x }}">', x=text) == f'<a title="{shown}">'
    assert made("{% macro m(y) %}{{ y }}{% endmacro %}{{ m(x) }}", x=text) == shown
    assert made("{% set y %}{{ x }}{% endset %}{{ y }}", x=text) == shown


def test_an_id_in_a_sentence_is_a_link_and_nothing_else_of_it_is_markup() -> None:
    id = "run_36wdmc2z1vve"
    shown = made("{{ x | ids_linked }}", x=f"<b>\u202e {id}, evt_36wdmc2z1vve, run_short")
    assert shown == (
        f'&lt;b&gt;‹U+202E› <a class="id" href="/runs/{id}">{id}</a>, evt_36wdmc2z1vve, run_short')


def test_json_shows_everything_that_is_in_it() -> None:
    shown = made("{{ x | as_json }}", x={"a\u202e": ["<b>", "line\n\u200b"]})
    assert shown == '{\n  &#34;a‹U+202E›&#34;: [\n    &#34;&lt;b&gt;&#34;,\n    &#34;line\\n‹U+200B›&#34;\n  ]\n}'


@pytest.mark.parametrize("name", ["safe", "escape", "e", "forceescape", "tojson", "join", "urlize", "xmlattr"])
def test_a_filter_that_would_slip_past_does_not_exist(name: str) -> None:
    with pytest.raises(TemplateAssertionError, match="No filter named"):
        PAGES.from_string("{{ x | " + name + " }}")


def test_a_name_that_is_not_given_is_an_error_and_not_nothing() -> None:
    with pytest.raises(UndefinedError):
        made("{{ forgotten }}")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_nothing_that_escaping_or_the_policy_cannot_see(path: Path) -> None:
    text = path.read_text("utf-8")
    PAGES.get_template(path.name)
    assert "autoescape" not in text
    assert not re.search(r"\{[{%][^}]*~[^}]*[}%]\}", text), "what ~ joins is not made visible"
    assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:|hx-on|hx-vals=.js:", text)
    assert not re.search(r"https?://", text)
    assert "csrf" not in text or path.name in ("outside.html", "entered.html"), "no page has the token of a session"
