"""The nouns of Keep, as plain data. Imports nothing of ours. In reading order:

states        every state and every allowed move
records       what the ledger holds, as frozen records
operations    what a script may ask for, and in which step
errors        everything that can go wrong, and what it leads to
acts          everything that a person or program can do
permissions   rules for what a workflow may do, and the function that judges a call
policy        the limits and waiting times of a host
codec         values as JSON text
ids           the kinds of ids and their two forms
clock         the only source of time and of new ids
visible       makes text from outside safe to show
redaction     removes secrets from text, JSON and errors
crash_points  named places where a test may stop the process
fast_record   makes frozen records faster
"""
