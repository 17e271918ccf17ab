"""Webhooks: sent in the form of Standard Webhooks, and taken in from several services. In reading order:

outgoing         sends one
inbox            takes deliveries in
senders          how each service signs
signature_check  checks a delivery by that
base             what keeps deliveries
spool            deliveries in a folder
signature        signs a delivery
"""
