"""No false alarms: the scripts that people are shown, checked with the connectors that they are written for."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai.connectors.base import Connector, surface
from keepai.connectors.files.files_connector import Files
from keepai.connectors.google.calendar import Calendar
from keepai.connectors.google.gmail import Gmail
from keepai.connectors.http.http_connector import Http
from keepai.connectors.local.mail import LocalMail
from keepai.connectors.local.sheets import LocalSheets
from keepai.connectors.rss.rss_connector import Rss
from keepai.connectors.slack.slack_connector import Slack
from keepai.connectors.sql.sql_connector import Sql
from keepai.connectors.webhook.inbox import Inbox
from keepai.connectors.webhook.outgoing import Webhook
from keepai.model.operations import Surface
from keepai.script.check import check
from tests.unit.script.samples import EXAMPLES, example

TEMPLATE = EXAMPLES.parent / "src/keepai/doors/cli/template/invoices.js"

#: Example → what may be said about it, all of it true: the older dialect, and consumers without `publishes`.
DESERVED = {
    "chapter-06.js": ["bare-producer", "input-by-title", "publishes-missing", "ui-title-missing", "title-ignored"],
    "feed-to-slack.js": ["publishes-missing"],
    "webhook-relay.js": ["publishes-missing"],
}


def offered(folder: Path, name: str) -> Surface:
    mail_and_sheets: list[Connector] = [
        LocalMail(folder, name="gmail", create=True),
        LocalSheets(folder, name="sheets", create=True),
    ]
    written_for: dict[str, list[Connector]] = {
        "feed-to-slack.js": [Rss("https://news.example.com/feed", name="news"), Slack("T1")],
        "file-drop.js": [Files(folder, name="drive")],
        "mail-to-calendar.js": [Gmail("a@example.com", "id"), Calendar("a@example.com", "id")],
        "orders-to-books.js": [
            Http(["https://shop.example.com/v1/"], name="shop"),
            Http(["https://books.example.com/v1/"], name="books"),
        ],
        "orders-to-invoices.js": [Sql(["orders", "invoices"], path=folder / "books.db", name="books")],
        "webhook-relay.js": [
            Inbox(folder / "in", create=True, name="payments"),
            Webhook("https://team.example.com/hook", name="team"),
        ],
    }
    return surface(written_for.get(name, mail_and_sheets))


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.js")))
def test_an_example_earns_only_what_it_deserves(name: str, tmp_path: Path) -> None:
    assert [each.code for each in check(example(name), offered(tmp_path, name)).findings] == DESERVED.get(name, [])


def test_the_scaffold_of_a_new_folder_is_clean(tmp_path: Path) -> None:
    assert check(TEMPLATE.read_text("utf-8"), offered(tmp_path, "")).findings == ()


def test_a_table_that_keep_toml_does_not_open_is_found(tmp_path: Path) -> None:
    source = example("orders-to-invoices.js").replace('table: "orders"', 'table: "salaries"')
    [found] = check(source, offered(tmp_path, "orders-to-invoices.js")).findings
    assert (found.code, found.severity, found.line) == ("param-wrong", "error", 16)
    assert found.message == (
        '`table` of `ctx.books.query` must be one of "orders", "invoices", not "salaries", so the run will fail.'
    )


@pytest.mark.parametrize(
    ("name", "right", "wrong", "code"),
    [
        ("email-to-sheets.js", "values: [", "value: [", "param-unknown"),
        ("email-to-sheets.js", 'spreadsheetId: "..."', "spreadsheetId: 7", "param-wrong"),
        ("routine-invoices.js", "to: mail.from,", "", "param-missing"),
        ("orders-to-books.js", 'url: "https://books.example.com/v1/entries",', "", "param-missing"),
        ("file-drop.js", "ifHash: found.hash", "ifHash: found.hash, overwrite: true", "param-unknown"),
        ("mail-to-calendar.js", 'add: ["Done"]', 'add: "Done"', "param-wrong"),
    ],
)
def test_a_call_that_its_connector_would_refuse_is_found(
    name: str, right: str, wrong: str, code: str, tmp_path: Path
) -> None:
    source = example(name)
    assert right in source
    assert code in [each.code for each in check(source.replace(right, wrong), offered(tmp_path, name)).errors]
