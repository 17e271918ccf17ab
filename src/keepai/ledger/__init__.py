"""The durable truth: tables, named transitions, reads. Never sees a script."""
