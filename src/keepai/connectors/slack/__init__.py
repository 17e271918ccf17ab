"""Slack over its Web API: `slack_connector` is what scripts call, `slack_errors` says what an answer proves."""
