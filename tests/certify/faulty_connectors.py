"""Faulty connectors, made by rule from two that are right: each writes rows into a database, and looks them up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .bases import TEMPLATE

_RIGHT = (TEMPLATE / "connector.txt").read_text("utf-8")
_CONTRACT = (TEMPLATE / "contract.txt").read_text("utf-8")
_COMPARE = '''    @create.compare_payload
    def same(self, old, new):
        return "equivalent" if old == new else "significant"

    @create.preview
'''

#: Kind → what is replaced by what, in both connectors.
_RULES: Sequence[tuple[str, str, str]] = (
    ("reconcile always says no", r"return Verdict\.applied\(\{\"id\": row\[0\]\}\) if row else Verdict\.failed\(\)",
     "return Verdict.failed()"),
    ("reconcile always says yes", r"return Verdict\.applied\(\{\"id\": row\[0\]\}\) if row else Verdict\.failed\(\)",
     'return Verdict.applied({"id": 1})'),
    ("reconcile the wrong way round", r"if row else Verdict\.failed\(\)",
     'if not row else Verdict.failed()'),
    ("reconcile looks for another key", r"where key = \?\", \(call\.idempotency_key,\)",
     'where key = ?", (call.idempotency_key + "x",)'),
    ("reconcile finds any row", r"where key = \?\", \(call\.idempotency_key,\)", 'where 1 = 1"'),
    ("reconcile takes an error for no", r"(        with closing\(sqlite3\.connect\(self\.path, timeout=1\)\) as db:\n"
     r"            row = .*\n)", r"        row = None\n"),
    ("says at once that it did not happen", r"            raise  # whatever.*",
     '            raise Transient("It did not work.") from None\n        except Exception:\n'
     '            raise Transient("It did not work.") from None'),
    ("takes every error for a refusal", r"            raise  # whatever.*",
     '            raise\n        except Exception:\n            raise PreconditionFailed("No.") from None'),
    ("swallows errors", r"            raise  # whatever.*",
     '            raise\n        except Exception:\n            return {"id": 0}'),
    ("tries twice by itself", r"(            return \{\"id\": self\._insert\(params, call\.idempotency_key\)\})",
     '            self._insert(params, call.idempotency_key + "-1")\n'
     '            return {"id": self._insert(params, call.idempotency_key)}'),
    ("keeps no key", r"values = \(ticket\[\"title\"\], ticket\[\"text\"\], key\)",
     'values = (ticket["title"], ticket["text"], None)'),
    ("makes a key of its own", r"values = \(ticket\[\"title\"\], ticket\[\"text\"\], key\)",
     'import uuid\n        values = (ticket["title"], ticket["text"], str(uuid.uuid4()))'),
    ("the title is the key", r"values = \(ticket\[\"title\"\], ticket\[\"text\"\], key\)",
     'values = (ticket["title"], ticket["text"], ticket["title"])'),
    ("says that keys are taken once", r"settle=5\)", "settle=5, key_window=86400)"),
    ("compare always says equal", r"return \"equivalent\" if old == new else \"significant\"", 'return "equivalent"'),
    ("compare never says equal", r"return \"equivalent\" if old == new else \"significant\"", 'return "significant"'),
    ("compare fails", r"return \"equivalent\" if old == new else \"significant\"", 'raise KeyError("text")'),
    ("compare gives no word", r"return \"equivalent\" if old == new else \"significant\"", "return old == new"),
)


@dataclass(frozen=True)
class FaultyConnector:
    """The text of a connector with one fault, and that of the file that tests it; both in one module of this name."""

    kind: str
    name: str
    connector: str
    contract: str

    def write(self, folder: Path) -> None:
        """Put both files, a keep.toml, a script and a case into a folder."""
        (folder / f"{self.name}.py").write_text(self.connector, "utf-8")
        (folder / f"{self.name}_contract.py").write_text(self.contract, "utf-8")
        (folder / "keep.toml").write_text(
            f'[connectors.tickets]\ntype = "{self.name}:Tickets"\npath = "tickets.db"\n', "utf-8")
        (folder / "open.js").write_text(SCRIPT, "utf-8")
        (folder / "open.test.toml").write_text(CASES, "utf-8")


SCRIPT = """export default Keep.workflow({
  name: "open",
  routines: { daily: { schedule: { cron: "0 9 * * *" }, handler: async (ctx) => {
    const day = new Date().toISOString().slice(0, 10);
    await ctx.withItem(day, `Ticket of ${day}`, async (ctx) => {
      if (ctx.item.isDone) return;
      await ctx.tickets.create({ title: `Plants of ${day}`, text: "Water them." });
    });
  } } },
});
"""
CASES = """[[case]]
name = "a ticket a day"
[[case.expect.output]]
call = "tickets.create"
"""


def right_connectors() -> Iterator[FaultyConnector]:
    """Two without a fault: one that compares payloads, and one whose table has another shape of answer."""
    compares = _RIGHT.replace("    @create.preview\n", _COMPARE)
    transacts = compares.replace('"insert into ticket', '"insert or ignore into ticket').replace(
        ".lastrowid", ".lastrowid or 1").replace("settle=5", "settle=1")
    for number, text in enumerate((compares, transacts), 1):
        yield _named("right", f"right{number}", text)


def faulty_connectors() -> Iterator[FaultyConnector]:
    """Every rule on both."""
    for right in right_connectors():
        for number, (kind, pattern, made) in enumerate(_RULES, 1):
            text = re.sub(pattern, made, right.connector, count=1)
            if text != right.connector:
                yield _named(kind, f"faulty{number}_{right.name}", text)


def _named(kind: str, name: str, connector: str) -> FaultyConnector:
    contract = re.sub(r"from \w+ import Tickets", f"from {name} import Tickets", _CONTRACT)
    return FaultyConnector(kind, name, connector, contract)
