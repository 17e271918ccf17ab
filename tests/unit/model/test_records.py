"""Records as people and programs see them: plain JSON, times as ISO, nothing that is only the host's."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields

import pytest

from keepai.model import crash_points, records
from keepai.model.records import Error, Gap, Run
from keepai.model.states import Phase, Reason, Status

RUN = Run(
    id="run_1", workflow_id="wf_1", seq=7, handler="poll", kind="consumer", version="1.0", trigger="event",
    retry_of=None, lineage="run_1", attempt=1, phase=Phase.MUTATING, state=Status.PAUSED, reason=Reason.TRANSIENT,
    prepare_result=None, prepared_at=None, outcome=None,
    error=Error("transient", "Busy.", evidence={"a": [1]}), retry_at=1_767_603_600_000,
    failures=1, exhausted=False, observed=3, host="hst_1", epoch=1, created_at=0, updated_at=1,
)


def test_a_run_is_shown_with_its_status_in_one_word_and_its_times_as_iso() -> None:
    shown = RUN.to_json()
    assert shown["status"] == "paused:transient"
    assert shown["retry_at"] == "2026-01-05T09:00:00.000Z"
    assert shown["prepared_at"] is None
    assert shown["error"] == {
        "code": "transient", "message": "Busy.", "line": None, "column": None, "step": None, "evidence": {"a": [1]},
        "item_id": None,
    }
    assert not {"state", "reason", "observed", "seq"} & set(shown)
    assert json.loads(json.dumps(shown)) == shown


def test_records_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        RUN.phase = Phase.COMMITTED  # type: ignore[misc]


@pytest.mark.parametrize("kind", records.Record.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_record_is_frozen_and_says_what_it_is(kind: type[records.Record]) -> None:
    assert kind.__doc__
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert set(kind.hidden()) <= {field.name for field in fields(kind)}  # type: ignore[arg-type]


def test_inner_records_are_shown_whole() -> None:
    assert Gap("poll", 0, 1).to_json() == {
        "handler": "poll", "since_at": "1970-01-01T00:00:00.000Z", "until_at": "1970-01-01T00:00:00.001Z",
        "looks": None,
    }


def test_points_are_told_to_whoever_listens_and_to_nobody_else() -> None:
    heard: list[str] = []
    crash_points.reach("unheard")
    crash_points.listen(heard.append)
    try:
        crash_points.reach("one")
    finally:
        crash_points.listen(None)
    crash_points.reach("unheard")
    assert heard == ["one"]
