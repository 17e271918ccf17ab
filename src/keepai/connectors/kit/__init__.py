"""What several connectors share: addresses, writing and reading mail, and the text of HTML."""
