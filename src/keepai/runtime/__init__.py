"""Runs one step of untrusted script code: yields operations, is sent answers, never sees a ledger."""
