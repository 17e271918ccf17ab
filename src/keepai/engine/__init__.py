"""Decides what happens next and carries it out; the ledger remembers, the runtime computes."""
