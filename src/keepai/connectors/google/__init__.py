"""Gmail, Sheets and Calendar by REST: `api` speaks, `access` renews the token, `errors` says what an answer proves."""
