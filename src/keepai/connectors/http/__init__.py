"""HTTP requests to services that have no connector of their own. In reading order:

http_connector    what scripts call
lookup            rules that say how to find out whether a request was carried out
statuses          what a status proves
http_credentials  how a connector over HTTP signs in
"""
