"""Has a model write a script, and tries what it wrote, until it may be offered to a person; it never accepts anything.

In reading order: `wires.py` (speaks with the model), `budget.py` (how much that may cost), `prompts.py` (what the model
is told; texts from outside are quoted), `drafts.py` (a draft, and what is wrong with it), `plan_loop.py` (the loop).
"""
