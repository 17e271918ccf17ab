"""The local workbook: names that cannot escape, rows that can be found again, files that people share."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepai.connectors.base import Page
from keepai.connectors.kit.marks import UPDATES_MAX
from keepai.connectors.local.sheets import LocalSheets, safe_name
from keepai.model.errors import PreconditionFailed, Rejected, RuleBroken
from tests.connectors.cases import call, files_in, read_csv


async def ask(book: Path, operation: str, key: str = "k", **params: Any) -> Any:
    spec = LocalSheets(book).operations[operation]
    return await spec.invoke(spec.parse({"spreadsheetId": "book", **params}), call(key))


async def values(book: Path) -> list[list[str]]:
    return [row["values"] for row in await ask(book, "getRows")]


NAMES = [
    "...",
    "..",
    ".",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "CON",
    "x" * 5_000,
    "a\nb",
    "ä",
    "%2E",
    "~root",
    "$HOME",
    "a.csv",
    ".keep.lock",
    "-rf",
    " ",
    "\u202e",
]


@pytest.mark.parametrize("name", NAMES)
async def test_no_spreadsheet_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    book = tmp_path / "deep" / "book"
    book.mkdir(parents=True)
    await ask(book, "appendRow", spreadsheetId=name, values=["x"], sheet=name)
    made = [path for path in files_in(tmp_path) if path.name != ".keep.lock"]
    assert [path.parent for path in made] == [book]
    assert len(await ask(book, "getRows", spreadsheetId=name, sheet=name)) == 1


def test_different_names_get_different_files() -> None:
    assert len({safe_name(name) for name in [*NAMES, "x" * 5_001, "%2e", "A", "a"]}) == len(NAMES) + 4
    assert safe_name("...") == "%2E%2E%2E"


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_safe_name_is_one_plain_file_name_and_keeps_names_apart(one: str, other: str) -> None:
    for spelled in (safe_name(one), safe_name(other)):
        assert Path(spelled).name == spelled
        assert len(spelled) <= 100
        assert not spelled.startswith(".")
    assert (safe_name(one) == safe_name(other)) == (one == other)


async def test_an_empty_name_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Rejected):
        await ask(tmp_path, "appendRow", spreadsheetId="", values=["x"])


cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20),
    st.sampled_from(
        ["=1+1", "@x", "+49 170 123", "-5", "'=x", "''", 'a"b', "a,b", "a\nb", "\r", "\t", "keep:" + "a" * 20]
    ),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(cells, min_size=1, max_size=5), min_size=1, max_size=6))
def test_any_values_come_back_as_text_in_their_order(rows: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book = Path(folder)

        async def story() -> list[list[str]]:
            for n, row in enumerate(rows):
                await ask(book, "appendRow", f"key-{n}", values=row)
                assert (
                    await LocalSheets(book)
                    .operations["appendRow"]
                    .reconcile({"spreadsheetId": "book", "values": row}, call(f"key-{n}"))
                ).status == "applied"
            return await values(book)

        assert asyncio.run(story()) == [[_text(cell) for cell in row] for row in rows]


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return str(cell).upper() if isinstance(cell, bool) else str(cell)


async def test_formulas_are_disarmed_in_the_file_and_read_back_as_they_were(tmp_path: Path) -> None:
    await ask(tmp_path, "appendRow", values=["=HYPERLINK(1)", "-2+3+cmd|x", "+49 170", "-5", -5])
    assert read_csv(tmp_path / "book.csv")[0][:5] == ["'=HYPERLINK(1)", "'-2+3+cmd|x", "+49 170", "-5", "-5"]
    assert await values(tmp_path) == [["=HYPERLINK(1)", "-2+3+cmd|x", "+49 170", "-5", "-5"]]


TORN = ["half a li", '"half a quoted ce', 'a,"b\nc', "a,b,keep:" + "a" * 12, "\ufeffx", "x\r", '"']


@pytest.mark.parametrize("torn", TORN)
async def test_a_torn_last_line_does_not_swallow_the_next_row(tmp_path: Path, torn: str) -> None:
    file = tmp_path / "book.csv"
    file.write_text("whole,row\n" + torn, newline="")
    await ask(tmp_path, "appendRow", values=["fresh"])
    assert file.read_bytes().startswith(b"whole,row\n")
    assert (await values(tmp_path))[0] == ["whole", "row"]
    assert (await values(tmp_path))[-1] == ["fresh"]
    spec = LocalSheets(tmp_path).operations["appendRow"]
    assert (
        await spec.reconcile({"spreadsheetId": "book", "values": ["fresh"]}, call("k"))
    ).status == "applied"


async def test_a_torn_row_of_ours_does_not_count_as_written(tmp_path: Path) -> None:
    await ask(tmp_path, "appendRow", values=["alice@example.com", 'says "hello"\nand more'])
    file = tmp_path / "book.csv"
    whole = file.read_bytes()
    spec = LocalSheets(tmp_path).operations["appendRow"]
    params = {"spreadsheetId": "book", "values": ["alice@example.com", 'says "hello"\nand more']}
    for length in range(len(whole) - 1):
        file.write_bytes(whole[:length])
        assert (await spec.reconcile(params, call("k"))).status == "failed", whole[:length]
        await spec.invoke(params, call("k"))
        assert (await spec.reconcile(params, call("k"))).status == "applied", whole[:length]


async def test_row_ids_survive_sorting_and_inserting_by_people(tmp_path: Path) -> None:
    ids = [(await ask(tmp_path, "appendRow", f"k{n}", values=[f"row {n}"]))["rowId"] for n in range(3)]
    file = tmp_path / "book.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(["title", *reversed(lines)]) + "\n")
    for n, id in enumerate(ids):
        assert (await ask(tmp_path, "getRow", rowId=id))["values"] == [f"row {n}"]
    assert await ask(tmp_path, "getRow", rowId="nope") is None


async def test_a_row_is_found_again_after_a_spreadsheet_program_padded_the_table(tmp_path: Path) -> None:
    id = (await ask(tmp_path, "appendRow", values=["a"]))["rowId"]
    file = tmp_path / "book.csv"
    file.write_text(file.read_text().rstrip("\n") + ",,a note,\n1,2,3,4,5\n")
    assert (await ask(tmp_path, "getRow", rowId=id))["values"] == ["a"]
    await ask(tmp_path, "updateRow", "k2", rowId=id, values=["b"])
    assert read_csv(file)[0][0] == "b"
    assert read_csv(file)[0][-2] == "a note"


async def test_an_update_changes_one_row_and_leaves_every_other_byte_alone(tmp_path: Path) -> None:
    file = tmp_path / "book.csv"
    head, tail = b'\xef\xbb\xbfName;"odd"\r\n\r\n', b"caf\xe9,'x\r\nlast without end"
    file.write_bytes(head + b"old,1\r\n" + tail)
    (row,) = [row for row in await ask(tmp_path, "getRows") if row["values"][0] == "old"]
    result = await ask(tmp_path, "updateRow", rowId=row["rowId"], values=["new"])
    assert result == {"rowId": row["rowId"], "row": 2}
    data = file.read_bytes()
    assert data.startswith(head + b"new,keep:")
    assert data.endswith(b"\r\n" + tail)
    assert (await ask(tmp_path, "getRow", rowId=row["rowId"]))["values"] == ["new"]


async def test_of_equal_rows_only_the_meant_one_is_updated(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text("same\nsame\nsame\n")
    ids = [row["rowId"] for row in await ask(tmp_path, "getRows")]
    assert len(set(ids)) == 3
    await ask(tmp_path, "updateRow", rowId=ids[2], values=["third"])
    assert await values(tmp_path) == [["same"], ["same"], ["third"]]


async def test_an_earlier_update_is_still_known_after_later_ones(tmp_path: Path) -> None:
    id = (await ask(tmp_path, "appendRow", values=["0"]))["rowId"]
    for n in range(5):
        await ask(tmp_path, "updateRow", f"u{n}", rowId=id, values=[str(n)])
    spec = LocalSheets(tmp_path).operations["updateRow"]
    params = {"spreadsheetId": "book", "rowId": id, "values": ["0"]}
    assert (await spec.reconcile(params, call("u0"))).status == "applied"
    assert (await spec.reconcile(params, call("other"))).status == "failed"
    for n in range(5, 5 + UPDATES_MAX):
        await ask(tmp_path, "updateRow", f"u{n}", rowId=id, values=[str(n)])
    assert (await spec.reconcile(params, call("u0"))).status == "unknown"


async def test_updating_a_row_that_is_gone_is_a_failed_precondition(tmp_path: Path) -> None:
    with pytest.raises(PreconditionFailed):
        await ask(tmp_path, "updateRow", rowId="gone", values=["x"])
    assert not (tmp_path / "book.csv").exists()


async def test_marks_stand_in_the_column_that_the_header_names(tmp_path: Path) -> None:
    file = tmp_path / "book.csv"
    file.write_text("From,Subject,Note,_keep\r\n", newline="")
    await ask(tmp_path, "appendRow", values=["a", "b"])
    assert file.read_bytes().count(b"\r\n") == 2
    header, row = read_csv(file)
    assert row[header.index("_keep")].startswith("keep:")
    assert (await values(tmp_path))[0] == ["From", "Subject", "Note"]


async def test_a_script_cannot_pass_off_its_row_as_another(tmp_path: Path) -> None:
    id = (await ask(tmp_path, "appendRow", values=["true"]))["rowId"]
    await ask(tmp_path, "appendRow", "k2", values=["forged", f"keep:{id}"])
    assert (await ask(tmp_path, "getRow", rowId=id))["values"] == ["true"]


async def test_rows_come_in_pages(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text("".join(f"{n}\n" for n in range(10)))
    page = await ask(tmp_path, "getRows", limit=3, offset=4)
    assert isinstance(page, Page)
    assert [row["values"] for row in page] == [["4"], ["5"], ["6"]]
    assert page.fields == {"total": 10, "more": True}
    assert [row["row"] for row in page] == [5, 6, 7]


async def test_fifty_appends_at_once_are_fifty_whole_rows(tmp_path: Path) -> None:
    spec = LocalSheets(tmp_path).operations["appendRow"]
    long = "x" * 5_000
    jobs = [spec.invoke({"spreadsheetId": "book", "values": [n, long]}, call(f"k{n}")) for n in range(50)]
    results: list[Any] = await asyncio.gather(*jobs)
    rows = read_csv(tmp_path / "book.csv")
    assert sorted(int(row[0]) for row in rows) == list(range(50))
    assert {row[1] for row in rows} == {long}
    assert sorted(result["row"] for result in results) == list(range(1, 51))


async def test_the_same_key_fifty_times_at_once_is_one_row(tmp_path: Path) -> None:
    spec = LocalSheets(tmp_path).operations["appendRow"]
    jobs = [spec.invoke({"spreadsheetId": "book", "values": ["x"]}, call()) for _ in range(50)]
    assert len({str(result) for result in await asyncio.gather(*jobs)}) == 1
    assert len(read_csv(tmp_path / "book.csv")) == 1


@pytest.mark.parametrize("row", [[], ["x" * 40_000], ["a\0b"], ["x"] * 2_000])
async def test_values_that_no_sheet_holds_are_rejected_and_nothing_is_written(
    tmp_path: Path, row: list[str]
) -> None:
    with pytest.raises(Rejected):
        await ask(tmp_path, "appendRow", values=row)
    assert not (tmp_path / "book.csv").exists()


async def test_cells_must_be_simple_values(tmp_path: Path) -> None:
    with pytest.raises(RuleBroken, match=r"params\.values\[1\] must be string or integer or number"):
        await ask(tmp_path, "appendRow", values=["a", {"b": 1}])


async def test_a_file_that_is_no_csv_is_a_failed_precondition(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text('"' + "x" * 200_000)
    with pytest.raises(PreconditionFailed):
        await ask(tmp_path, "appendRow", values=["a"])


async def test_a_page_of_rows_ends_before_it_is_too_large_for_a_script(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text(("x" * 100_000 + "\n") * 30)
    page = await ask(tmp_path, "getRows")
    assert 5 < len(page) < 15
    assert page.fields["more"] is True
