"""The short form: hosts are killed between sending a mail and hearing the answer, on real servers (13.6.3, R221)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.mail_servers import running, why_not
from tests.prove.mail import Killing

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


@pytest.mark.parametrize(("sent_copy", "kills"), [("server", 5), ("keep", 3)])
def test_a_host_killed_between_sending_and_the_answer_sends_each_mail_once(
    tmp_path: Path, sent_copy: str, kills: int
) -> None:
    with running() as (imap, post):
        outcome = Killing(imap, post, tmp_path, sent_copy=sent_copy, seed=1).run(kills)
    assert outcome.broken == [], str(outcome)
    assert outcome.kills.total() == kills
    assert outcome.effects == outcome.mails >= kills
