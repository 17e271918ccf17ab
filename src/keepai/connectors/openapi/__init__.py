"""Chosen operations of an OpenAPI document as a connector. In reading order:

openapi_connector  what scripts call; the requests are those of `http`
api_document       what is taken of a document: operations, params, bodies, results
lookup_guesses     look-up rules that a document suggests, as text for the owner to judge
"""
