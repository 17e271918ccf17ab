"""The verbs: the only writes there are. Each is one transaction and expects the state that it changes."""
