"""Feeds in RSS and Atom."""
