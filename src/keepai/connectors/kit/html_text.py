"""Extracts the text of HTML that a stranger wrote.

Every step goes through the text once, so that no input takes more than linear time. Before, a mail of 150 kB blocked
the whole host for 17 seconds, because three regular expressions started again at every `<`.
"""

from __future__ import annotations

import html
import re

_TAG = re.compile(r"/?([A-Za-z][A-Za-z0-9]{0,15})")
_BREAKS = frozenset({"br", "/p", "/div", "/tr", "/li", "/h1", "/h2", "/h3", "/h4", "/h5", "/h6"})
#: Elements whose content people do not see → their end.
_HIDDEN = {name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in ("script", "style", "head")}
#: Longer numbers are not characters, and Python refuses very long ones.
_ENTITY = re.compile(r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};?)")


def text_of_html(markup: str) -> str:
    """What a reader would see, without tags, comments, scripts and styles."""
    pieces: list[str] = []
    endless: set[str] = set()  # hidden elements that are known to have no end
    at = 0
    while at >= 0:
        opened = markup.find("<", at)
        if opened < 0:
            pieces.append(markup[at:])
            break
        pieces.append(markup[at:opened])
        if markup.startswith("<!--", opened):
            pieces.append(" ")
            at = _after(markup, "-->", opened + 4)  # a comment without an end hides the rest, as in browsers
            continue
        tag = _TAG.match(markup, opened + 1)
        if tag is None and not markup.startswith(("<!", "<?", "</"), opened):
            pieces.append("<")  # not a tag: "a < b"
            at = opened + 1
            continue
        closed = markup.find(">", opened)
        if closed < 0:
            pieces.append(markup[opened:])
            break
        at = closed + 1
        name = tag[0].lower() if tag else ""
        if name in _BREAKS:
            pieces.append("\n")
        elif name in _HIDDEN and name not in endless:
            pieces.append(" ")
            end = _HIDDEN[name].search(markup, at)
            if end is not None:
                at = _after(markup, ">", end.end())
            elif name == "head":
                endless.add(name)
            else:
                break
    return _ENTITY.sub(lambda match: html.unescape(match[0]), "".join(pieces)).strip()


def _after(text: str, mark: str, start: int) -> int:
    """The position after the next `mark`; -1 if there is none."""
    position = text.find(mark, start)
    return position + len(mark) if position >= 0 else -1
