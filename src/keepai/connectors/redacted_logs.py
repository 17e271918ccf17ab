"""Removes secrets from Python's own log while a host is open: a library may log the address that it requests."""

from __future__ import annotations

import logging
import traceback
from typing import Any
from weakref import WeakSet

from ..model.redaction import Redactor

_COVERED: WeakSet[Redactor] = WeakSet()
_installed = False


def cover(redactor: Redactor) -> None:
    """From now on, remove what `redactor` knows from every record."""
    global _installed
    _COVERED.add(redactor)
    if not _installed:
        made_before = logging.getLogRecordFactory()
        logging.setLogRecordFactory(lambda *args, **options: _clean(made_before(*args, **options)))
        _installed = True


def uncover(redactor: Redactor) -> None:
    """Stop: the host is closed."""
    _COVERED.discard(redactor)


def _clean(record: logging.LogRecord) -> logging.LogRecord:
    for redactor in list(_COVERED):
        text = _message(record)
        if redactor.found(text) is not None:
            record.msg, record.args = redactor.text(text), None
        if record.exc_info and record.exc_info[0] is not None:
            _clean_error(record, redactor)
        if record.stack_info:
            record.stack_info = redactor.text(record.stack_info)
    return record


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # logging would print the arguments as they are
        record.msg, record.args = f"{record.msg} {record.args!r}", None
        return str(record.msg)


def _clean_error(record: logging.LogRecord, redactor: Redactor) -> None:
    exc_info: Any = record.exc_info
    whole = "".join(traceback.format_exception(*exc_info))
    if redactor.found(whole) is not None:
        record.exc_info, record.exc_text = None, redactor.text(whole)
