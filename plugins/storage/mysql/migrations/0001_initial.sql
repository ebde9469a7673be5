-- Names, identifiers and documents are bytes (VARBINARY, BLOB): no collation
-- folds case, ignores a trailing space or decides an order. Times are UTC with
-- microseconds. Quantities are exact DECIMALs. Where the identity of a row is
-- longer than an index takes, its key is the SHA-256 of its parts, each with its
-- length in front. MySQL ends a transaction at every CREATE, so each statement
-- here can be repeated.

-- The one row that everybody who writes locks first, with what is counted.
CREATE TABLE IF NOT EXISTS fencepost_state (
  scope           TINYINT       NOT NULL PRIMARY KEY,
  store           VARBINARY(64) NOT NULL,
  routes_revision BIGINT        NOT NULL,
  last_event      BIGINT        NOT NULL,
  last_item       BIGINT        NOT NULL,
  claims          BIGINT        NOT NULL,
  restores        BIGINT        NOT NULL,
  last_beat       DATETIME(6)   NULL,
  restored_through DATETIME(6)  NULL,
  CHECK (scope = 1)
) ENGINE = InnoDB;

INSERT INTO fencepost_state (scope, store, routes_revision, last_event, last_item, claims, restores)
VALUES (1, REPLACE(UUID(), '-', ''), 0, 0, 0, 0, 0)
ON DUPLICATE KEY UPDATE scope = 1;

CREATE TABLE IF NOT EXISTS fencepost_events (
  seq           BIGINT          NOT NULL PRIMARY KEY,
  event_key     BINARY(32)      NOT NULL,
  tenant        VARBINARY(512)  NOT NULL,
  event_id      VARBINARY(1024) NOT NULL,
  feature       VARBINARY(512)  NOT NULL,
  quantity      DECIMAL(38, 12) NOT NULL,
  kind          VARBINARY(16)   NOT NULL,
  effect        DECIMAL(38, 12) NOT NULL,
  reverses      BOOLEAN         NOT NULL,
  original_id   VARBINARY(1024) NOT NULL,
  original_key  BINARY(32)      NULL,
  occurred_at   DATETIME(6)     NOT NULL,
  period_start  DATETIME(6)     NOT NULL,
  period_end    DATETIME(6)     NOT NULL,
  period_source VARBINARY(16)   NOT NULL,
  plan          VARBINARY(1024) NOT NULL,
  plan_version  VARBINARY(1024) NOT NULL,
  dimensions    MEDIUMBLOB      NULL,
  metadata      MEDIUMBLOB      NULL,
  payload_hash  BINARY(32)      NOT NULL,
  dedupe_hash   BINARY(32)      NOT NULL,
  recorded_at   DATETIME(6)     NOT NULL,
  UNIQUE KEY event_key (event_key),
  KEY original_key (original_key),
  KEY usage_at (tenant, feature, occurred_at),
  CHECK (kind = 'usage' AND original_key IS NULL AND reverses = 0 OR kind = 'correction' AND original_key IS NOT NULL)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_receipts (
  receipt_key BINARY(32)      NOT NULL PRIMARY KEY,
  tenant      VARBINARY(512)  NOT NULL,
  receipt_id  VARBINARY(4096) NOT NULL,
  source      VARBINARY(4096) NOT NULL,
  id          VARBINARY(4096) NOT NULL,
  type        VARBINARY(4096) NOT NULL,
  occurred_at DATETIME(6)     NOT NULL,
  dedupe_hash BINARY(32)      NOT NULL,
  features    MEDIUMBLOB      NOT NULL,
  entries     MEDIUMBLOB      NOT NULL,
  body        MEDIUMBLOB      NULL,
  recorded_at DATETIME(6)     NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_totals (
  tenant       VARBINARY(512)  NOT NULL,
  feature      VARBINARY(512)  NOT NULL,
  period_start DATETIME(6)     NOT NULL,
  period_end   DATETIME(6)     NOT NULL,
  quantity     DECIMAL(50, 12) NOT NULL,
  events       BIGINT          NOT NULL,
  net          BIGINT          NOT NULL,
  signed_usage BOOLEAN         NOT NULL,
  PRIMARY KEY (tenant, feature, period_start),
  CHECK (signed_usage = 1 OR quantity >= 0)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_subscriptions (
  tenant       VARBINARY(512)  NOT NULL PRIMARY KEY,
  plan         VARBINARY(1024) NOT NULL,
  plan_version VARBINARY(1024) NOT NULL,
  anchor       DATETIME(6)     NOT NULL,
  billing_interval VARBINARY(16) NOT NULL,
  timezone     VARBINARY(255)  NOT NULL,
  customers    MEDIUMBLOB      NULL,
  revision     BIGINT          NOT NULL,
  updated_at   DATETIME(6)     NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_counters (
  tenant       VARBINARY(512)  NOT NULL,
  feature      VARBINARY(512)  NOT NULL,
  period_start DATETIME(6)     NOT NULL,
  period_end   DATETIME(6)     NOT NULL,
  value        DECIMAL(50, 12) NOT NULL,
  PRIMARY KEY (tenant, feature, period_start)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_history (
  tenant  VARBINARY(512)  NOT NULL,
  feature VARBINARY(512)  NOT NULL,
  start   DATETIME(6)     NOT NULL,
  value   DECIMAL(50, 12) NOT NULL,
  PRIMARY KEY (tenant, feature, start)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_batches (
  batch_key  BINARY(32)     NOT NULL PRIMARY KEY,
  owner      VARBINARY(255) NOT NULL,
  applied_at DATETIME(6)    NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_features (
  feature      VARBINARY(512) NOT NULL PRIMARY KEY,
  signed_usage BOOLEAN        NOT NULL,
  buckets      MEDIUMBLOB     NULL,
  revision     BIGINT         NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_mappings (
  version VARBINARY(255)  NOT NULL PRIMARY KEY,
  place   BIGINT          NOT NULL,
  label   VARBINARY(1024) NOT NULL,
  content MEDIUMBLOB      NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_routes (
  route           BIGINT         NOT NULL PRIMARY KEY,
  exporter        VARBINARY(255) NOT NULL,
  account         VARBINARY(255) NOT NULL,
  mode            VARBINARY(64)  NOT NULL,
  feature         VARBINARY(512) NOT NULL,
  disposition     VARBINARY(16)  NOT NULL,
  mapping_version VARBINARY(255) NOT NULL,
  applies_after   BIGINT         NOT NULL,
  retired_at      DATETIME(6)    NULL
) ENGINE = InnoDB;

-- What is to be sent, under which identity, and where it stands. subject holds
-- subject_key while the item is not superseded and NULL afterwards: at most one
-- item of a subject can be sent.
CREATE TABLE IF NOT EXISTS fencepost_items (
  item                BIGINT          NOT NULL PRIMARY KEY,
  digest              BINARY(32)      NOT NULL,
  subject_key         BINARY(32)      NOT NULL,
  subject             BINARY(32)      NULL,
  tenant              VARBINARY(512)  NOT NULL,
  subject_kind        VARBINARY(16)   NOT NULL,
  subject_ref         VARBINARY(1024) NOT NULL,
  exporter            VARBINARY(255)  NOT NULL,
  account             VARBINARY(255)  NOT NULL,
  mode                VARBINARY(64)   NOT NULL,
  mapping_version     VARBINARY(255)  NOT NULL,
  route               BIGINT          NOT NULL,
  event_seq           BIGINT          NOT NULL,
  feature             VARBINARY(512)  NOT NULL,
  payload             MEDIUMBLOB      NULL,
  created_at          DATETIME(6)     NOT NULL,
  usage_at            DATETIME(6)     NOT NULL,
  usage_value         DECIMAL(50, 12) NOT NULL,
  depends_on          BIGINT          NOT NULL,
  customer            VARBINARY(1024) NOT NULL,
  serial_key          VARBINARY(1024) NOT NULL,
  state               VARBINARY(16)   NOT NULL,
  attempts            BIGINT          NOT NULL,
  attempt_budget      BIGINT          NOT NULL,
  unresolved          BOOLEAN         NOT NULL,
  first_attempt_at    DATETIME(6)     NULL,
  first_unresolved_at DATETIME(6)     NULL,
  next_attempt_at     DATETIME(6)     NULL,
  claimed_at          DATETIME(6)     NULL,
  lease_owner         VARBINARY(255)  NOT NULL,
  lease_expires_at    DATETIME(6)     NULL,
  lease_token         BIGINT          NOT NULL,
  provider_ref        VARBINARY(1024) NOT NULL,
  accepted_at         DATETIME(6)     NULL,
  confirmed_at        DATETIME(6)     NULL,
  confirmed_by        VARBINARY(255)  NOT NULL,
  disputed            BLOB            NOT NULL,
  last_error          BLOB            NULL,
  quarantine_reason   VARBINARY(64)   NOT NULL,
  settled_at          DATETIME(6)     NULL,
  superseded_by       BIGINT          NOT NULL,
  method              VARBINARY(64)   NOT NULL,
  waits               BOOLEAN         NOT NULL,
  UNIQUE KEY digest (digest),
  UNIQUE KEY subject (subject),
  KEY event_seq (event_seq),
  KEY depends_on (depends_on),
  KEY due (state, route, superseded_by, waits, next_attempt_at),
  KEY leases (state, route, lease_expires_at),
  KEY serial (serial_key, state, lease_expires_at),
  KEY counted (route, state, settled_at, superseded_by),
  KEY usage_at (route, usage_at),
  CHECK (attempts >= 0),
  CHECK (superseded_by = 0 AND subject = subject_key OR superseded_by <> 0 AND subject IS NULL)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_attempts (
  attempt BIGINT     NOT NULL AUTO_INCREMENT PRIMARY KEY,
  item    BIGINT     NOT NULL,
  fenced  BOOLEAN    NOT NULL,
  content MEDIUMBLOB NOT NULL,
  KEY item (item),
  KEY fenced (fenced)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_actions (
  action        BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at            DATETIME(6)   NOT NULL,
  item          BIGINT        NOT NULL,
  kind          VARBINARY(32) NOT NULL,
  actor         BLOB          NOT NULL,
  reason        BLOB          NOT NULL,
  evidence_kind VARBINARY(32) NOT NULL,
  evidence      MEDIUMBLOB    NOT NULL,
  from_state    VARBINARY(16) NOT NULL,
  to_state      VARBINARY(16) NOT NULL,
  detail        MEDIUMBLOB    NULL,
  KEY item (item)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_hosts (
  host            VARBINARY(255) NOT NULL PRIMARY KEY,
  version         VARBINARY(255) NOT NULL,
  started_at      DATETIME(6)    NOT NULL,
  beat_at         DATETIME(6)    NOT NULL,
  flushed_through DATETIME(6)    NULL,
  claims          BIGINT         NOT NULL,
  noticed         DATETIME(6)    NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_clock_samples (
  sample   BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  host     VARBINARY(255) NOT NULL,
  boot_id  VARBINARY(255) NOT NULL,
  boottime BIGINT         NOT NULL,
  store_at DATETIME(6)    NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_roles (
  role  VARBINARY(255) NOT NULL PRIMARY KEY,
  owner VARBINARY(255) NOT NULL,
  until DATETIME(6)    NULL,
  fence BIGINT         NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_bounds (
  exporter     VARBINARY(255)  NOT NULL,
  account      VARBINARY(255)  NOT NULL,
  mode         VARBINARY(64)   NOT NULL,
  tenant       VARBINARY(512)  NOT NULL,
  feature      VARBINARY(512)  NOT NULL,
  period_start DATETIME(6)     NOT NULL,
  period_end   DATETIME(6)     NOT NULL,
  acked        DECIMAL(50, 12) NOT NULL,
  staged_to    DECIMAL(50, 12) NULL,
  item         BIGINT          NOT NULL,
  updated_at   DATETIME(6)     NULL,
  PRIMARY KEY (exporter, account, mode, tenant, feature, period_start),
  KEY item (item)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_cutovers (
  tenant       VARBINARY(512) NOT NULL,
  feature      VARBINARY(512) NOT NULL,
  durable_from DATETIME(6)    NOT NULL,
  PRIMARY KEY (tenant, feature)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_reconciliations (
  run         VARBINARY(255) NOT NULL PRIMARY KEY,
  exporter    VARBINARY(255) NOT NULL,
  account     VARBINARY(255) NOT NULL,
  mode        VARBINARY(64)  NOT NULL,
  from_time   DATETIME(6)    NOT NULL,
  to_time     DATETIME(6)    NOT NULL,
  started_at  DATETIME(6)    NOT NULL,
  finished_at DATETIME(6)    NULL,
  error       MEDIUMBLOB     NOT NULL,
  line_count  BIGINT         NOT NULL,
  differing   BIGINT         NOT NULL,
  confirmed   BIGINT         NOT NULL,
  KEY started_at (started_at)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fencepost_reconciliation_lines (
  run        VARBINARY(255)  NOT NULL,
  line       BIGINT          NOT NULL,
  customer   VARBINARY(1024) NOT NULL,
  feature    VARBINARY(512)  NOT NULL,
  meter      VARBINARY(1024) NOT NULL,
  from_time  DATETIME(6)     NOT NULL,
  to_time    DATETIME(6)     NOT NULL,
  recorded   DECIMAL(50, 12) NOT NULL,
  reported   DECIMAL(50, 12) NOT NULL,
  provider   DECIMAL(50, 12) NULL,
  difference DECIMAL(50, 12) NULL,
  cause      VARBINARY(255)  NOT NULL,
  confirmed  BIGINT          NOT NULL,
  PRIMARY KEY (run, line)
) ENGINE = InnoDB;
