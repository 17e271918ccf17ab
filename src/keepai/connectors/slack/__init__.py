"""Slack over its Web API."""
