-- What sotto sink of version 0.3.0 made of an empty database.
CREATE TABLE meta (
  id INTEGER NOT NULL,
  state VARCHAR NOT NULL,
  projected_generation BIGINT NOT NULL,
  clock BIGINT,
  lineage VARCHAR,
  PRIMARY KEY (id)
);
CREATE TABLE windows (
  collector VARCHAR NOT NULL,
  "plan" VARCHAR NOT NULL,
  version INTEGER NOT NULL,
  metric VARCHAR NOT NULL,
  window_start BIGINT NOT NULL,
  window_end BIGINT NOT NULL,
  type VARCHAR NOT NULL,
  mechanism VARCHAR NOT NULL,
  n BIGINT NOT NULL,
  reports_by_level JSON NOT NULL,
  revision BIGINT NOT NULL,
  minimum_reports BIGINT,
  withheld VARCHAR,
  PRIMARY KEY (collector, "plan", version, metric, window_start)
);
CREATE TABLE estimates (
  collector VARCHAR NOT NULL,
  "plan" VARCHAR NOT NULL,
  version INTEGER NOT NULL,
  metric VARCHAR NOT NULL,
  window_start BIGINT NOT NULL,
  kind VARCHAR NOT NULL,
  item VARCHAR NOT NULL,
  window_end BIGINT NOT NULL,
  position INTEGER NOT NULL,
  value FLOAT,
  standard_error FLOAT,
  low FLOAT,
  high FLOAT,
  display FLOAT,
  detection_floor FLOAT,
  n BIGINT NOT NULL,
  reports_by_level JSON NOT NULL,
  significant BOOLEAN,
  p_value FLOAT,
  confounded_with JSON,
  unit VARCHAR,
  method VARCHAR,
  revision BIGINT NOT NULL,
  withheld VARCHAR,
  PRIMARY KEY (collector, "plan", version, metric, window_start, kind, item)
);
CREATE TABLE periods (
  collector VARCHAR NOT NULL,
  period_start BIGINT NOT NULL,
  period_end BIGINT NOT NULL,
  closed BOOLEAN NOT NULL,
  pseudonyms BIGINT NOT NULL,
  chains BIGINT NOT NULL,
  accepted BIGINT NOT NULL,
  observed BIGINT NOT NULL,
  most_accepted BIGINT NOT NULL,
  most_observed BIGINT NOT NULL,
  over_budget BIGINT NOT NULL,
  equivocation BIGINT NOT NULL,
  PRIMARY KEY (collector, period_start)
);
CREATE TABLE quarantine (
  generation BIGINT NOT NULL,
  reason VARCHAR NOT NULL,
  rows BIGINT NOT NULL,
  requeued BIGINT,
  PRIMARY KEY (generation, reason)
);
CREATE TABLE sink_offsets (
  topic VARCHAR NOT NULL,
  partition INTEGER NOT NULL,
  topic_id VARCHAR NOT NULL,
  next BIGINT NOT NULL,
  PRIMARY KEY (topic, partition)
);
CREATE TABLE sink_revisions (
  "key" VARCHAR NOT NULL,
  revision BIGINT NOT NULL,
  PRIMARY KEY ("key")
);
CREATE TABLE sink_jobs (
  job VARCHAR NOT NULL,
  seen BIGINT NOT NULL,
  replaced BOOLEAN NOT NULL,
  PRIMARY KEY (job)
);
CREATE TABLE health (
  collector VARCHAR NOT NULL,
  revision BIGINT NOT NULL,
  document JSON NOT NULL,
  PRIMARY KEY (collector)
);
