"""The nouns: states, records, operations, errors, time and values. Imports nothing of ours."""
