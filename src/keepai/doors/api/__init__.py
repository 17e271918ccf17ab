"""The API: what the command line and the page do, over HTTP with JSON, for programs with a token.

`api_views.py`  what can be looked at, and under which path
`openapi.py`    the document that describes all of it, made from the tables
`api_port.py`   the port: who asks, what is asked, and the answer
"""
