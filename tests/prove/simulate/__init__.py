"""Deterministic simulation: the real engine and the real SQL on a seeded event loop with virtual time."""
