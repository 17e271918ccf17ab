"""What several connectors share. In reading order:

params          kinds of params (addresses, URLs, paths) and their one normal form
mailbox         the contract of a mailbox: params and results
spreadsheet     the contract of a spreadsheet: params and results
addresses       e-mail addresses as scripts write them
mail_writer     makes the bytes of a message
mail_parser     reads the bytes of a message
mail_query      the query language of mailboxes
html_text       the text of HTML
texts           cleans and compares texts
lenient_json    reads JSON that other programs wrote
parser_process  runs a parser of untrusted text in its own process
pages           limits of one page of results, and items that cannot be read
marks           marks by which a connector finds again what it wrote
folder          the base of connectors for a folder on this machine
folder_watch    notices what appears in folders
disk            locks, writes and syncs local files
blocking        runs blocking work in a thread, within the deadline
"""
