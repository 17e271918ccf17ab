"""The local mailbox: cursors that miss nothing, messages that cannot break it, queries."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepai.connectors.base import Page
from keepai.connectors.local.mail import LocalMail
from keepai.model.errors import Rejected, RuleBroken
from keepai.testing import ManualClock
from tests.connectors.cases import call, files_in, make_maildir

PLAIN = b"From: Ann <ann@example.com>\r\nTo: me@example.com\r\nSubject: %s\r\n\r\nHello there\r\n"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    make_maildir(tmp_path / "box")
    return tmp_path / "box"


def put(
    box: Path, name: str, data: bytes | None = None, *, part: str = "new", mtime: int = 1_700_000_000
) -> None:
    path = box / part / name
    path.write_bytes(PLAIN % name.encode() if data is None else data)
    os.utime(path, (mtime, mtime))


async def search(box: Path, **params: Any) -> Page[Any]:
    operation = LocalMail(box, clock=ManualClock("2026-01-05T09:00:00Z")).operations["search"]
    page = await operation.invoke(operation.parse(params), call())
    assert isinstance(page, Page)
    return page


def subjects(page: Page[Any]) -> list[str]:
    return [mail["subject"] for mail in page]


async def test_without_a_cursor_everything_is_found_and_with_it_only_what_is_newer(box: Path) -> None:
    put(box, "a")
    first = await search(box, after=None)
    put(box, "b")
    second = await search(box, after=first.fields["lastCursor"])
    assert (subjects(first), subjects(second)) == (["a"], ["b"])


async def test_the_cursor_stays_when_nothing_is_new(box: Path) -> None:
    put(box, "a")
    first = await search(box)
    second = await search(box, after=first.fields["lastCursor"])
    assert list(second) == []
    assert second.fields["lastCursor"] == first.fields["lastCursor"]


async def test_an_empty_mailbox_has_a_cursor_too(box: Path) -> None:
    page = await search(box)
    assert page.fields["lastCursor"] == "0"
    put(box, "a")
    assert subjects(await search(box, after="0")) == ["a"]


async def test_a_mail_that_arrives_late_with_an_old_time_is_not_lost(box: Path) -> None:
    put(box, "b", mtime=2_000)
    cursor = (await search(box)).fields["lastCursor"]
    put(box, "a", mtime=1_000)
    assert subjects(await search(box, after=cursor)) == ["a"]


async def test_reading_a_mail_in_a_mail_program_does_not_make_it_new(box: Path) -> None:
    put(box, "a")
    first = await search(box)
    (box / "new" / "a").rename(box / "cur" / "a:2,S")
    assert subjects(await search(box, after=first.fields["lastCursor"])) == []
    assert (await search(box))[0]["id"] == first[0]["id"]


async def test_a_lost_index_shows_mail_again_and_loses_none(box: Path) -> None:
    put(box, "a", mtime=2_000)
    cursor = (await search(box)).fields["lastCursor"]
    (box / "keep-index").unlink()
    put(box, "b", mtime=1_000)
    assert subjects(await search(box, after=cursor)) == ["b", "a"]


async def test_a_torn_index_line_is_written_again(box: Path) -> None:
    put(box, "aaaa")
    cursor = (await search(box)).fields["lastCursor"]
    put(box, "bbbb")
    with (box / "keep-index").open("a") as index:
        index.write("bb")
    assert subjects(await search(box, after=cursor)) == ["bbbb"]
    assert (box / "keep-index").read_text() == "aaaa\nbbbb\n"


async def test_pages_cut_by_the_limit_go_on_without_a_gap(box: Path) -> None:
    for n in range(7):
        put(box, f"m{n}")
    found, cursor, more = [], None, True
    while more:
        page = await search(box, after=cursor, limit=3)
        cursor, more = page.fields["lastCursor"], page.fields["more"]
        found += subjects(page)
    assert found == [f"m{n}" for n in range(7)]


async def test_what_is_no_cursor_is_rejected(box: Path) -> None:
    with pytest.raises(Rejected, match="lastCursor"):
        await search(box, after="yesterday")


async def test_wrong_params_are_all_listed_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(RuleBroken) as caught:
        await search(tmp_path / "nowhere", after=5, limt=3)
    assert "params.after must be string or null, not 5" in caught.value.message
    assert "params.limt is unknown: did you mean \"limit\"?" in caught.value.message


steps = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(0, 3), st.sampled_from(["new", "cur"])),
        st.tuples(st.just("search"), st.sampled_from([None, 1, 2]), st.just("")),
        st.tuples(st.just("flag"), st.integers(0, 20), st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_following_the_cursor_sees_every_mail_exactly_once_whatever_the_order(plan: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        box = Path(folder) / "box"
        make_maildir(box)
        assert asyncio.run(_follow(box, plan)) == sorted(
            p.name.partition(":")[0] for p in box.glob("[nc][eu][wr]/*")
        )


async def _follow(box: Path, plan: list[Any]) -> list[str]:
    seen: list[str] = []
    cursor: Any = None
    for number, (act, value, part) in enumerate([*plan, ("search", None, "")]):
        if act == "deliver":
            put(box, f"m{number:03d}", part=part, mtime=1_000 + value)
        elif act == "flag":
            files = files_in(box / "new") + files_in(box / "cur")
            if files:
                file = files[value % len(files)]
                file.rename(box / "cur" / (file.name.partition(":")[0] + f":2,{'S' * (value % 3)}"))
        else:
            page = await search(box, after=cursor, limit=value)
            cursor = page.fields["lastCursor"]
            seen += [mail["id"] for mail in page]
    assert len(seen) == len(set(seen))
    return sorted(seen)


JUNK = {
    "empty": b"",
    "binary": bytes(range(256)) * 20,
    "no-headers": b"just some text\nwithout any header\n",
    "bad-subject": b"Subject: =?utf-8?B?%%%%?= =?no-such-charset?Q?x=FF?= \xff\xfe\n\nbody\n",
    "eight-bit": "From: Jörg <j@example.com>\nSubject: Grüße\n\nGrüße\n".encode("latin-1"),
    "bad-date": b"From: a@b\nDate: the day after tomorrow\nSubject: x\n\n",
    "far-date": b"From: a@b\nDate: Mon, 1 Jan 9999 00:00:00 +9999\nSubject: x\n\n",
    "bad-charset": b'Subject: x\nContent-Type: text/plain; charset="\xff\x00klingon"\n\nbody \xff\n',
    "bad-base64": b"Subject: x\nContent-Transfer-Encoding: base64\n\n%%%not base64%%%\n",
    "bad-multipart": b"Subject: x\nContent-Type: multipart/mixed; boundary=\n\n--\n--x\n",
    "nested": b"Content-Type: message/rfc822\n\n" * 5_000,
    "nul": b"Subject: a\x00b\nFrom: \x00\n\nx\x00y\n",
    "huge": b"Subject: big\n\n" + b"x" * 3_000_000,
    "html": b"Subject: h\nContent-Type: text/html\n\n<style>p{}</style><p>Hi &amp; bye</p><script>1</script>",
    "folded": b"Subject: one\n two\n\tthree\nSubject: second\n\n",
    "surrogate": b"Subject: =?utf-8?B?7aCA?=\n\nx",
}


@pytest.mark.parametrize("name", JUNK)
async def test_no_file_breaks_the_search_and_every_field_is_text(box: Path, name: str) -> None:
    put(box, name, JUNK[name])
    (mail,) = await search(box)
    assert all(isinstance(value, str) for value in mail.values())
    assert mail["from"]
    assert mail["subject"]
    get = LocalMail(box).operations["get"]
    whole: Any = await get.invoke({"id": mail["id"]}, call())
    assert whole["truncated"] is (name == "huge")


async def test_odd_encodings_show_what_was_meant(box: Path) -> None:
    for name in ("eight-bit", "html", "folded", "no-headers", "bad-date"):
        put(box, name, JUNK[name])
    found = {mail["id"]: mail for mail in await search(box)}
    assert found["eight-bit"]["subject"] == "Grüße"
    assert found["html"]["snippet"] == "Hi & bye"
    assert found["folded"]["subject"] == "one two three"
    assert found["no-headers"]["from"] == "(no sender)"
    assert found["bad-date"]["date"] == "2023-11-14T22:13:20.000Z"


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=400), st.sampled_from([b"", b"Subject: ", b"From: =?", b"Content-Type: multipart/x;"])
)
def test_arbitrary_bytes_are_read_as_some_message(data: bytes, start: bytes) -> None:
    from keepai.connectors.kit.mail_parser import parse
    from keepai.model.codec import encode

    mail = parse(start + data, "x", 0)
    encode([mail.sender, mail.to, mail.subject, mail.date, mail.snippet, mail.body])


async def test_junk_in_the_folder_is_passed_over(box: Path) -> None:
    put(box, ".hidden")
    (box / "new" / "folder").mkdir()
    (box / "cur" / "link").symlink_to("/etc/passwd")
    (box / "new" / "broken").symlink_to("/nowhere")
    os.mkfifo(box / "cur" / "pipe")
    put(box, "real")
    assert subjects(await search(box)) == ["real"]


async def test_odd_file_names_get_ids_that_lead_back_to_them(box: Path) -> None:
    for name in (b"bad\xff\xfe", b"two\nlines", b"x-41", "größe".encode(), b"with,S=123:2,RS"):
        put(box, os.fsdecode(name), PLAIN % b"s")
    page = await search(box)
    get = LocalMail(box).operations["get"]
    assert len({mail["id"] for mail in page}) == 5
    for mail in page:
        assert (await get.invoke({"id": mail["id"]}, call())) is not None
    assert list(await search(box, after=page.fields["lastCursor"])) == []


@pytest.mark.parametrize("id", ["../secret", "/etc/passwd", "..", "", "a\0b", "new/a"])
async def test_an_id_is_never_a_path(box: Path, id: str) -> None:
    put(box, "a")
    (box.parent / "secret").write_text("x")
    assert await LocalMail(box).operations["get"].invoke({"id": id}, call()) is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from:ann", ["Invoice 7", "Lunch"]),
        ("FROM:ANN invoice", ["Invoice 7"]),
        ('subject:"invoice 7"', ["Invoice 7"]),
        ("newer_than:24h", ["Lunch"]),
        ("older_than:1d", ["Invoice 7"]),
        ('"pay now"', ["Invoice 7"]),
        ("to:nobody", []),
        ("", ["Invoice 7", "Lunch"]),
    ],
)
async def test_queries_find_what_they_name(box: Path, query: str, expected: list[str]) -> None:
    put(
        box,
        "1",
        b"From: Ann <a@x>\nSubject: Invoice 7\nDate: Thu, 1 Jan 2026 09:00:00 +0000\n\nplease pay now",
    )
    put(box, "2", b"From: Ann <a@x>\nSubject: Lunch\nDate: Mon, 5 Jan 2026 08:00:00 +0000\n\nat noon?")
    assert subjects(await search(box, query=query)) == expected


@pytest.mark.parametrize(
    "query", ["has:attachment", "a OR b", "-spam", "newer_than:soon", "(a b)", "from: ann"]
)
async def test_a_query_beyond_the_subset_is_rejected_with_what_is_supported(box: Path, query: str) -> None:
    with pytest.raises(Rejected, match="It supports: from:"):
        await search(box, query=query)


@pytest.mark.parametrize(
    "params",
    [
        {"to": "a@x\r\nBcc: evil@x", "subject": "s", "body": "b"},
        {"to": "a@x", "subject": "s\nX-Evil: 1", "body": "b"},
        {"to": [], "subject": "s", "body": "b"},
        {"to": "a@x", "subject": "s", "body": "b", "inReplyTo": "<x>\n"},
    ],
)
async def test_a_header_cannot_be_smuggled_in(box: Path, params: dict[str, Any]) -> None:
    with pytest.raises((Rejected, RuleBroken)):
        await LocalMail(box).operations["send"].invoke(params, call())
    assert not (box / ".Sent").exists()


async def test_a_sent_message_carries_its_key_and_is_not_found_as_received(box: Path) -> None:
    params = {"to": ["a@x", "b@x"], "cc": "c@x", "subject": "Grüße ✓", "body": "line\n", "inReplyTo": "<1@x>"}
    await LocalMail(box, address="me@x").operations["send"].invoke(params, call("key-7"))
    (file,) = (box / ".Sent" / "cur").iterdir()
    text = file.read_text()
    assert "X-Keep-Key: key-7" in text
    assert "To: a@x,\n b@x" in text
    assert list(await search(box)) == []


async def test_a_sent_message_is_found_again_after_a_mail_program_copied_it(box: Path) -> None:
    spec = LocalMail(box).operations["send"]
    params = {"to": "a@x", "subject": "s", "body": "b"}
    await spec.invoke(params, call())
    (file,) = (box / ".Sent" / "cur").iterdir()
    file.rename(file.with_name("1700000000.other:2,RS"))
    verdict = await spec.reconcile(params, call())
    assert (verdict.status, verdict.result) == ("applied", {"id": "1700000000.other"})


async def test_the_preview_is_the_whole_message_with_hidden_characters_shown(box: Path) -> None:
    spec = LocalMail(box, name="gmail").operations["send"]
    text = spec.preview({"to": "a@x", "subject": "safe\u202eevil", "body": "long\n" * 500})
    assert text.startswith("gmail.send\nTo: a@x\nSubject: safe‹U+202E›evil\n")
    assert text.count("long") == 500


async def test_fifty_sends_and_searches_at_once_do_not_disturb_each_other(box: Path) -> None:
    mail = LocalMail(box)
    send, find = mail.operations["send"], mail.operations["search"]
    for n in range(50):
        put(box, f"m{n:02d}")
    tasks: list[Any] = [
        send.invoke({"to": "a@x", "subject": str(n), "body": ""}, call(f"k{n % 25}")) for n in range(50)
    ]
    pages: list[Any] = await asyncio.gather(*tasks, *[find.invoke({}, call()) for _ in range(10)])
    assert len(list((box / ".Sent" / "cur").iterdir())) == 25
    assert len({page.fields["lastCursor"] for page in pages[50:]}) == 1
    assert list((box / ".Sent" / "tmp").iterdir()) == []


async def test_mails_with_monstrous_headers_come_in_smaller_pages_and_none_is_lost(box: Path) -> None:
    for n in range(300):
        put(
            box,
            f"m{n:03d}",
            ("Subject: " + "漢" * 990 + "\nFrom: " + "漢" * 990 + "\n\n" + "漢" * 200).encode(),
        )
    first = await search(box)
    second = await search(box, after=first.fields["lastCursor"])
    assert first.fields["more"] is True
    assert len(first) + len(second) == 300
