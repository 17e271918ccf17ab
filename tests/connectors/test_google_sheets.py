"""Google Sheets: rows that can be found again, cells that never become formulas, and changes by people in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from keepai import OutcomeUnknown, PermissionDenied, PreconditionFailed, Rejected
from keepai.testing.loopback import Loopback
from tests.connectors.cases import call
from tests.connectors.google_subjects import connect
from tests.connectors.services.google import SheetsService


class Book:
    """A spreadsheet and its connector."""

    def __init__(self, server: Loopback, service: SheetsService) -> None:
        self.server, self.service = server, service
        self.connector = connect("google.sheets", "sheets", server.url, "/v4/")

    async def __call__(self, operation: str, key: str = "key-1", **params: Any) -> Any:
        spec = self.connector.operations[operation]
        return await spec.invoke(spec.parse({"spreadsheetId": "book-1", **params}), call(key))

    async def look(self, operation: str, key: str = "key-1", **params: Any) -> Any:
        spec = self.connector.operations[operation]
        return await spec.reconcile(spec.parse({"spreadsheetId": "book-1", **params}), call(key))


@pytest.fixture
def book() -> Iterator[Book]:
    service = SheetsService()
    with Loopback(service.handle) as server:
        yield Book(server, service)


async def test_a_row_is_added_after_the_last_one_and_found_by_its_id(book: Book) -> None:
    book.service.write("Name", "Age")
    made = await book("appendRow", values=["Ann", 30, None, True])
    assert made["row"] == 2
    assert book.service.rows() == [["Name", "Age"], ["Ann", 30, "", True]]
    assert await book("getRow", rowId=made["rowId"]) == {**made, "values": ["Ann", "30", "", "TRUE"]}


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "'=1", '=IMPORTXML("http://x")', "\t=1", "0012", "1/2"])
async def test_no_text_becomes_a_formula_or_a_date(book: Book, text: str) -> None:
    await book("appendRow", values=[text])
    assert book.service.sheets["book-1"]["First"]["rows"][0][0]["userEnteredValue"] == {"stringValue": text}


async def test_a_named_sheet_is_found_also_with_an_apostrophe_and_a_wide_row_makes_room(book: Book) -> None:
    await book("appendRow", sheet="It's", values=list("abcdefgh"))
    assert book.service.rows("It's") == [list("abcdefgh")]
    with pytest.raises(PreconditionFailed, match="no sheet"):
        await book("appendRow", sheet="Nowhere", values=["a"])


async def test_ids_stay_when_people_sort_and_insert(book: Book) -> None:
    first, second = await book("appendRow", "k1", values=["b"]), await book("appendRow", "k2", values=["a"])
    rows = book.service.sheets["book-1"]["First"]["rows"]
    rows.reverse()
    rows.insert(0, [{"userEnteredValue": {"stringValue": "head"}}])
    assert (await book("getRow", rowId=first["rowId"]))["row"] == 3
    await book("updateRow", "k3", rowId=second["rowId"], values=["changed"])
    assert book.service.rows() == [["head"], ["changed"], ["b"]]
    assert (await book.look("appendRow", "k2", values=["a"])).result == {"rowId": second["rowId"], "row": 2}


async def test_an_update_clears_what_it_does_not_name_and_leaves_peoples_notes(book: Book) -> None:
    made = await book("appendRow", "k1", values=["a", "b", "c"])
    cell = book.service.sheets["book-1"]["First"]["rows"][0]
    cell[0]["note"] += "\nby Ann"
    cell[1]["note"] = "a note of hers"
    await book("updateRow", "k2", rowId=made["rowId"], values=["x"])
    assert book.service.rows() == [["x", "", ""]]
    assert "by Ann" in cell[0]["note"]
    assert cell[1]["note"] == "a note of hers"


async def test_a_row_that_a_person_wrote_can_be_updated_once_it_was_seen(book: Book) -> None:
    book.service.write("same")
    book.service.write("same")
    first, second = await book("getRows")
    assert first["rowId"] != second["rowId"]
    await book("updateRow", rowId=second["rowId"], values=["changed"])
    assert book.service.rows() == [["same"], ["changed"]]
    assert (await book.look("updateRow", rowId=second["rowId"], values=["changed"])).status == "applied"
    assert (await book.look("updateRow", "k2", rowId=second["rowId"], values=["other"])).status == "failed"


async def test_rows_that_somebody_moves_at_that_moment_are_told_and_not_hidden(book: Book) -> None:
    book.service.write("above")
    made = await book("appendRow", "k1", values=["mine"])
    book.service.write("below")
    rows = book.service.sheets["book-1"]["First"]["rows"]
    book.service.before_write = lambda: rows.insert(0, [{"userEnteredValue": {"stringValue": "new"}}])
    with pytest.raises(OutcomeUnknown, match="moved rows"):
        await book("updateRow", "k2", rowId=made["rowId"], values=["changed"])
    verdict = await book.look("updateRow", "k2", rowId=made["rowId"], values=["changed"])
    assert verdict.status == "unknown"


async def test_a_copied_row_is_not_guessed_at(book: Book) -> None:
    made = await book("appendRow", "k1", values=["a"])
    rows = book.service.sheets["book-1"]["First"]["rows"]
    rows.append([dict(each) for each in rows[0]])
    with pytest.raises(PreconditionFailed, match="copies"):
        await book("updateRow", "k2", rowId=made["rowId"], values=["b"])
    assert book.service.rows() == [["a"], ["a"]]


async def test_pages_say_whether_more_follows(book: Book) -> None:
    for n in range(5):
        book.service.write(f"r{n}")
    book.service.sheets["book-1"]["First"]["rows"].insert(2, [{}])  # an empty row between
    page = await book("getRows", limit=2, offset=2)
    assert [each["values"] for each in page] == [["r2"], ["r3"]]
    assert [each["row"] for each in page] == [4, 5]
    assert page.fields == {"total": 5, "more": True}


@pytest.mark.parametrize("values", [[], [None, ""], ["x" * 50_001], ["x"] * 1_025])
async def test_what_a_sheet_would_not_keep_is_refused(book: Book, values: list[Any]) -> None:
    with pytest.raises(Rejected):
        await book("appendRow", values=values)
    assert book.service.rows() == []


async def test_an_id_that_is_none_leads_nowhere(book: Book) -> None:
    for id in ("../x", "...", "a/b:batchUpdate", ""):
        with pytest.raises(Rejected, match="spreadsheetId"):
            await book("appendRow", spreadsheetId=id, values=["a"])
    with pytest.raises(PreconditionFailed):
        await book("appendRow", spreadsheetId="gone", values=["a"])
    assert book.service.rows() == []


async def test_a_lookup_that_may_not_see_says_so(book: Book) -> None:
    await book("appendRow", values=["a"])
    book.service.revoked = True
    book.service.expire()
    with pytest.raises(PermissionDenied):
        await book.look("appendRow", values=["a"])


def test_people_see_every_cell(book: Book) -> None:
    told = book.connector.operations["appendRow"].preview({"spreadsheetId": "book-1", "values": ["a", None, 3]})
    assert told == ("sheets.appendRow as ann@example.com\nspreadsheet book-1, sheet (the first)\n"
                    "  1. a\n  2. (empty)\n  3. 3")
