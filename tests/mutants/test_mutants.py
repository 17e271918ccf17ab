"""The mutation tester itself: its faults are Python and SQL, and what it says of a fault is true."""

from __future__ import annotations

import ast
import random
from pathlib import Path

from tests.mutants.__main__ import AREAS, ROOT, Verdict, candidates, equivalent, table, without_line
from tests.mutants.faults import of_python, of_sql

SOURCE = """
class Door:
    def open(self, key, *, loud=True):
        if key is None or not self.fits(key):
            return False
        self.ring(loud=True)
        return self.count + 1 > 3
"""


def test_a_fault_is_one_place_in_the_text() -> None:
    found = list(of_python(Path("x.py"), SOURCE))
    assert {each.function for each in found} == {"Door.open"}
    told = {each.told(SOURCE).partition(": ")[2] for each in found}
    assert told >= {
        "key is None → key is not None", "not self.fits(key) → (self.fits(key))", "self.ring(loud=True) → pass",
        "key is None or not self.fits(key) → (key is None and not self.fits(key))", "False → True", "True → False",
        "self.count + 1 > 3 → self.count + 1 >= 3", "self.count + 1 → (self.count - 1)", "3 → 4",
        "self.count + 1 > 3 → None", "key is None or not self.fits(key) → False",
    }
    assert all(ast.parse(each.put_into(SOURCE)) for each in found)
    sql = "-- a > b is old\nselect a from t where a > :b and c = 'x' and s in ('y', 'z');"
    assert {each.told(sql).partition(": ")[2] for each in of_sql(Path("x.sql"), sql)} == {
        "> → >=", "and c = 'x' → and 1", "'y', → nothing", ", 'z' → nothing"}


def test_every_area_has_faults_and_they_can_be_read_as_python() -> None:
    every = candidates()
    assert {area for area, _ in every} == set(AREAS)
    for _, each in random.Random(1).sample(every, 150):
        if each.path.suffix == ".py":
            ast.parse(each.put_into((ROOT / each.path).read_text()))


def test_what_is_listed_as_equivalent_is_still_a_fault_that_can_be_made() -> None:
    named = {without_line(each.told((ROOT / each.path).read_text())) for _, each in candidates()}
    assert equivalent() - named == set()


def test_the_table_counts_what_was_found_and_names_the_rest() -> None:
    [first, second, third, *_] = list(of_python(Path("x.py"), SOURCE))
    told = table([Verdict("engine", first, "one", "failed"), Verdict("engine", second, "two", ""),
                  Verdict("vault", third, "three", "broke"), Verdict("vault", third, "four", "undecided")])
    assert told.splitlines() == [
        "area          mutants   found   score", "engine              2       1     50%",
        "vault               1       1    100%", "all                 3       2     67%", "  survived: two",
        "  undecided: four"]
