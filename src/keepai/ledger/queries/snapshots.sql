-- One moment for several reads: what is read between these two is as it stood at the first read.

-- name: look_begin
-- From here on, see one moment of the ledger.
begin;

-- name: look_end
-- See what is committed again.
commit;
