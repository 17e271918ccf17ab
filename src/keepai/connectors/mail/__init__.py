"""A mailbox on a server that speaks IMAP and SMTP. In reading order:

mail_connector  what scripts call
messages        finds and reads messages
delivery        sends a message so that Keep can find out whether it was sent
filing          sets labels and moves messages
idle            notices new mail
folders         the folders of the mailbox
imap            one connection to the IMAP server
smtp            one connection to the SMTP server
servers         addresses and encryption of the servers
server_errors   what an answer of a server proves
"""
