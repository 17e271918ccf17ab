"""Webhooks in the form of Standard Webhooks. In reading order:

outgoing   sends one
inbox      takes deliveries in
spool      deliveries on disk
signature  signs a delivery and checks a signature
"""
