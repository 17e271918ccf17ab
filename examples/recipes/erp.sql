-- The table of the database behind ctx.erp. `keep init` makes erp.db from it.
create table orders (id text primary key, customer text not null, total real not null);
