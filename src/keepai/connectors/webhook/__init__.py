"""Webhooks: sending them and taking them in, both in the form of Standard Webhooks."""
