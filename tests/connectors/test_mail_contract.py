"""The mail connector's mutations against the contract of all connectors; effects are counted on the servers' side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from keepai.model.errors import ConnectorError, PermissionDenied, PreconditionFailed, Rejected, Transient
from keepai.testing.contract import Fault, examine
from tests.connectors.mail_servers import Dovecot, Post
from tests.connectors.mail_subjects import MAIL, Label, MailSubject, Send, SendWithCopies


@pytest.mark.parametrize("subject", MAIL, ids=lambda each: each.__name__)
async def test_no_second_effect_and_no_false_word(
    subject: type[MailSubject], mail_servers: tuple[Dovecot, Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MailSubject, "servers", mail_servers, raising=False)
    report = await examine(subject)
    assert not report.broken, str(report)
    assert report.untried == []
    told = {trial.name: trial for trial in report.trials}
    assert set(subject.refusals) == {name.removeprefix("refused: ") for name in told if name.startswith("refused: ")}
    if subject is SendWithCopies:
        lost_ways = [Fault.ANSWER_LOST, Fault.HELD, Fault.WRONG_ANSWER]
        for lost in (each.value.replace("_", " ") for each in lost_ways):
            assert any("looked up: applied" in each for each in told[lost].said), told[lost]


def test_each_refusal_of_the_contract_is_one_of_the_errors_that_prove(mail_servers: Any) -> None:
    proving: set[type[ConnectorError]] = {Transient, PermissionDenied, PreconditionFailed, Rejected}
    make: Callable[[type[MailSubject]], set[Any]] = lambda subject: set(subject.refusals.values())  # noqa: E731
    assert set().union(*(make(each) for each in (Send, Label))) == proving
