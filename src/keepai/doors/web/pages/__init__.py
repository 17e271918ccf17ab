"""The pages, in reading order; `web/__init__.py` says what a page is.

`workflow_pages.py`   Home, one workflow, the versions of its script
`proposals_page.py`   what was proposed, and one of it to be accepted or declined
`needs_you_page.py`   questions to a person, one in hand or several at once
`lists_pages.py`      inputs, outputs, items and events: the lists, and the page of one entry
`runs_page.py`        runs, and one run: its steps in time, what it called, why it stopped
`permissions_page.py` the rule of a permission: its form, and the rule in words before it is saved
`search_page.py`      search over everything, and the palette
`plan_page.py`        what a model is writing, begun by the box on Home
`health_page.py`      the host, its ledger, its sandbox and its connectors
"""
