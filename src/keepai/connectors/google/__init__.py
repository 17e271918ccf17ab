"""Gmail, Sheets and Calendar over REST. In reading order:

api              requests with an access token; the base of the three connectors
tokens           the token endpoint
access           renews an access token
google_sign_in   obtains a refresh token with a browser
google_errors    what an answer proves
google_cursor    where a search continues
gmail            the mailbox; gmail_messages reads and writes its messages
google_sheets    the spreadsheets; sheet_rows marks and reads their rows
calendar         the calendar; calendar_events reads and writes its events
"""
