"""Outside systems that are folders on this machine. In reading order:

mail       a mailbox in a Maildir
maildir    the Maildir on disk, and the order of its messages
sheets     a workbook of CSV files
csv_table  a CSV file as rows with stable ids
"""
