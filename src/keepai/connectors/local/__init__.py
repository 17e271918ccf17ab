"""Outside systems that are folders on this machine: a mailbox and a workbook."""
