#!/bin/sh
# Makes the role with which Grafana reads results: all views and tables, now and later, and nothing else.
# A new database runs it by itself; run it in the container for one that is there already.
set -eu
psql --set=ON_ERROR_STOP=1 --set=password="$SOTTO_READER_PASSWORD" \
  --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<'SQL'
CREATE ROLE reader LOGIN PASSWORD :'password';
GRANT USAGE ON SCHEMA public TO reader;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO reader;
SQL
