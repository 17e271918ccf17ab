"""Reads the ledger and gives what the doors show: lists, stories, reasons, questions. It writes nothing.

In reading order:

`look.py`                a ledger opened to be read; what every door looks through
`views.py`               inputs, outputs, events, runs, mutations, items and questions as records
`inputs_and_events.py`   an input or event as people see it, from its row; consumers that leave what waits
`inbox_entries.py`       what is kept in the inboxes
`lists.py`               the same lists a page at a time, newest first
`overview.py`            every workflow at a glance
`activity.py`            how much came in, went out and failed in each of the last 24 hours
`charts.py`              that as a picture
`call_sentences.py`      a call in a person's words
`shared_hosts.py`        the hosts of a ledger that several share, and which one runs a workflow
`workflow_details.py`    one workflow: handlers, schedules, versions, permissions
`parked_runs.py`         what goes on while a run waits, and what parked runs hold, in words
`graph_svg.py`           its graph of topics as a picture
`questions.py`           which stopped runs are questions to a person, with the facts and the answers
`unknown_outcome.py`     what is known of a mutation in doubt, and what a host adds to that
`proposal_card.py`       what was proposed as a person judges it, and as a question
`repair_questions.py`    a repair that waits for a person, as a question
`contradictions.py`      evidence that contradicts a recorded outcome, as a question
`left_items.py`          an item that its routine began and left, as a question
`offered_acts.py`        the words of a question, what comes of each answer, and what to type
`explain.py`             why something is in its state
`reasons.py`             the sentences for that
`next_steps.py`          what can move it on
`story.py`               what happened to it, from the account
`waterfall.py`           a run as bars in time
`record_shapes.py`       the shape of a record as JSON, read off its class
`blast.py`               what the runs of a version or of a span of time have touched
`shadow_words.py`        what a new script would do otherwise than recorded runs, in sentences
`digest.py`              what came in, went out and failed in a span of time
`notice_texts.py`        questions and the digest as messages to people
`whole_thing.py`        everything that is known of one thing
`metrics.py`            what monitoring reads
`everything_shown.py`   all of that, piece by piece, to be compared at two places
`excerpt.py`             the line of a script that an error points at
`code_colours.py`        a script's text in pieces, each with its kind, to be coloured
`verdict_words.py`       what a new version does to what is open, in sentences
`diffs.py`               what differs between two texts, or two contents
`wording.py`             times, numbers and sizes in words
"""
