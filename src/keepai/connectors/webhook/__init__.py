"""Webhooks in the form of Standard Webhooks. In reading order:

outgoing   sends one
inbox      takes deliveries in
base       what keeps deliveries
spool      deliveries in a folder
signature  signs a delivery and checks a signature
"""
