"""The orders in short: big ones wait, small ones go through, the host is killed, and each order is booked once."""

from __future__ import annotations

import pytest

from tests.prove import orders


def test_small_orders_go_through_on_a_host_that_is_killed_while_big_ones_wait(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert orders.main(["--small", "30", "--kills", "4", "--seed", "3"]) == 0
    assert "each order once" in capfd.readouterr().out
