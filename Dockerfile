# One host of Keep, with what a ledger in PostgreSQL needs. compose.yaml starts two.

FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir --prefix=/installed '.[postgres]'

FROM python:3.13-slim
COPY --from=build /installed /usr/local
RUN useradd --uid 10001 --no-create-home --home-dir /keep keep && install -d -o keep -g keep -m 700 /keep
USER keep
WORKDIR /keep
CMD ["keep", "serve"]
