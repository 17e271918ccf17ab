"""One contract for every connector: break the outside in every known way, and compare what was said with what happened.

    class Creating(Subject):
        operation, params = "create", {"title": "A"}

        def __init__(self, folder): self.path = make_database(folder)
        def connector(self): return Tickets(self.path)
        def effects(self): return count_rows(self.path)

    report = await examine(Creating)
    assert not report.broken, report

Connectors are judged by what the engine makes of them: `engine/outside.py` gives meaning to what they raise here as it
does in a host. The bar is no second effect, and no "it did not happen" about something that did.
"""

from .examine import Report, Trial, examine, operation_of, subjects_in
from .http import HttpSubject
from .subject import CANARY, Fault, Subject

__all__ = ["CANARY", "Fault", "HttpSubject", "Report", "Subject", "Trial", "examine", "operation_of", "subjects_in"]
