-- The tables of the database behind ctx.shop. `keep init` makes shop.db from it.
create table customers (id integer primary key, name text not null, email text not null);
create table invoices (
  id integer primary key, email text not null, total real not null, due text not null, paid integer not null default 0
);
create table sales (id text primary key, day text not null, customer text not null, total real not null);
