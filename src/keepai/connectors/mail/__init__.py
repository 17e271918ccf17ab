"""A mailbox somewhere else, reached by IMAP and SMTP: `connector` is what scripts see of it."""
