-- Times are microseconds since 1970 in UTC. Quantities are canonical decimal
-- text: SQLite has no exact type that is wide enough. tenant_key leads every
-- key of tenant data, so that rows can move to other stores by tenant; only the
-- generation of a projection comes before it, because whoever reads one reads
-- no other.
--
-- Lists are written as OR and AND: for IN with more than two values SQLite
-- builds a table for each row that it checks.

CREATE TABLE fencepost_meta (
  key   TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- The last insertion identities handed out. Not AUTOINCREMENT: that writes its
-- bookkeeping for every row, and for every row that was skipped.
--
-- store says which store this is, claims is raised by every claim that takes
-- something and restores by what an operator does after the store went back in
-- time: a restored backup has the same id and fewer claims. last_beat is the
-- latest heartbeat and restored_through what a restore was settled up to, 0 for none.
INSERT INTO fencepost_meta (key, value) VALUES ('routes_revision', 0), ('last_event', 0), ('last_item', 0),
  ('store', lower(hex(randomblob(16)))), ('claims', 0), ('restores', 0), ('restored_through', 0), ('last_beat', 0);

-- The generations of the totals and buckets. last is the highest number that
-- was ever given: an abandoned one may still have rows.
CREATE TABLE fencepost_generations (
  scope             INTEGER PRIMARY KEY CHECK (scope = 1),
  active            INTEGER NOT NULL,
  building          INTEGER,
  previous          INTEGER,
  last              INTEGER NOT NULL,
  watermark         INTEGER NOT NULL DEFAULT 0,
  cursor            INTEGER NOT NULL DEFAULT 0,
  paused            INTEGER NOT NULL DEFAULT 0 CHECK (paused = 0 OR paused = 1),
  active_settings   TEXT    NOT NULL DEFAULT '',
  building_settings TEXT    NOT NULL DEFAULT '',
  begun_at          INTEGER,
  activated_at      INTEGER
) STRICT;

INSERT INTO fencepost_generations (scope, active, last) VALUES (1, 1, 1);

-- What a feature is: changing it would change what is stored. buckets are the
-- dimensions that its buckets keep, NULL for no buckets. revision is that of the
-- routes after the change that wrote the row.
CREATE TABLE fencepost_features (
  feature  TEXT    PRIMARY KEY CHECK (feature <> ''),
  signed   INTEGER NOT NULL CHECK (signed = 0 OR signed = 1),
  buckets  TEXT,
  revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- effect is what a correction adds to the totals; that of usage is its quantity
-- and is not stored again. receipt_id is the CloudEvent that it came from.

CREATE TABLE fencepost_events (
  seq               INTEGER PRIMARY KEY,
  tenant_key        TEXT    NOT NULL CHECK (tenant_key <> ''),
  event_id          TEXT    NOT NULL CHECK (event_id <> ''),
  feature           TEXT    NOT NULL,
  quantity          TEXT    NOT NULL,
  kind              TEXT    NOT NULL,
  effect            TEXT,
  reverses          INTEGER NOT NULL DEFAULT 0,
  original_event_id TEXT,
  occurred_at       INTEGER NOT NULL,
  period_start      INTEGER NOT NULL,
  period_end        INTEGER NOT NULL,
  period_source     TEXT    NOT NULL,
  plan              TEXT,
  plan_version      TEXT,
  dimensions        TEXT,
  metadata          TEXT,
  payload_hash      BLOB    NOT NULL CHECK (length(payload_hash) = 32),
  dedupe_hash       BLOB    NOT NULL CHECK (length(dedupe_hash) = 32),
  recorded_at       INTEGER NOT NULL,
  receipt_id        TEXT,
  UNIQUE (tenant_key, event_id),
  CHECK ((kind = 'usage' AND reverses = 0 AND original_event_id IS NULL)
    OR (kind = 'correction' AND (reverses = 0 OR reverses = 1)
      AND original_event_id IS NOT NULL AND effect IS NOT NULL))
) STRICT;

CREATE INDEX fencepost_events_original
  ON fencepost_events (tenant_key, original_event_id) WHERE original_event_id IS NOT NULL;

-- What retention leaves of an event: enough to know it again.
CREATE TABLE fencepost_tombstones (
  tenant_key  TEXT    NOT NULL CHECK (tenant_key <> ''),
  event_id    TEXT    NOT NULL CHECK (event_id <> ''),
  seq         INTEGER NOT NULL UNIQUE,
  feature     TEXT    NOT NULL,
  dedupe_hash BLOB    NOT NULL CHECK (length(dedupe_hash) = 32),
  receipt_id  TEXT,
  pruned_at   INTEGER NOT NULL,
  PRIMARY KEY (tenant_key, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX fencepost_tombstones_pruned ON fencepost_tombstones (pruned_at);

-- When the events of a period occurred that retention removed. buckets is the
-- revision of the feature's settings under which all of them went into its
-- buckets; -1 when there were none, or other ones for some.
CREATE TABLE fencepost_pruned (
  tenant_key   TEXT    NOT NULL,
  feature      TEXT    NOT NULL,
  period_start INTEGER NOT NULL,
  earliest     INTEGER NOT NULL,
  latest       INTEGER NOT NULL,
  buckets      INTEGER NOT NULL,
  PRIMARY KEY (tenant_key, feature, period_start)
) STRICT, WITHOUT ROWID;

-- The first receipt of a CloudEvent. seqs are the events that it became, in
-- the order of features.
CREATE TABLE fencepost_cloudevents (
  tenant_key  TEXT    NOT NULL CHECK (tenant_key <> ''),
  receipt_id  TEXT    NOT NULL CHECK (receipt_id <> ''),
  source      TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  occurred_at INTEGER NOT NULL,
  dedupe_hash BLOB    NOT NULL CHECK (length(dedupe_hash) = 32),
  features    TEXT    NOT NULL,
  seqs        TEXT    NOT NULL,
  body        TEXT,
  recorded_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_key, receipt_id)
) STRICT, WITHOUT ROWID;

-- Receipts that fed nothing have no tombstone that leads to them.
CREATE INDEX fencepost_cloudevents_unmatched
  ON fencepost_cloudevents (recorded_at) WHERE seqs = '[]';

-- events counts rows, count is net: usage less what was fully reversed. A
-- negative generation is the seed of a build; generation 0 is what retention
-- removed. Canonical text has its sign in front, so the check is exact.
CREATE TABLE fencepost_totals (
  generation   INTEGER NOT NULL,
  tenant_key   TEXT    NOT NULL,
  feature      TEXT    NOT NULL,
  period_start INTEGER NOT NULL,
  period_end   INTEGER NOT NULL,
  quantity     TEXT    NOT NULL,
  events       INTEGER NOT NULL,
  count        INTEGER NOT NULL,
  signed       INTEGER NOT NULL CHECK (signed = 0 OR signed = 1),
  PRIMARY KEY (generation, tenant_key, feature, period_start),
  CONSTRAINT total_below_zero CHECK (signed = 1 OR substr(quantity, 1, 1) <> '-')
) STRICT, WITHOUT ROWID;

-- projection is the generation as in fencepost_totals, generation that of the
-- bucket: one more than the seals that cover it. dimensions are the members of a
-- JSON object in the order of their names, without its braces: they sort as the
-- contract says.
CREATE TABLE fencepost_buckets (
  projection   INTEGER NOT NULL,
  tenant_key   TEXT    NOT NULL,
  feature      TEXT    NOT NULL,
  bucket_start INTEGER NOT NULL,
  dimensions   TEXT    NOT NULL,
  generation   INTEGER NOT NULL,
  sum          TEXT    NOT NULL,
  count        INTEGER NOT NULL,
  min          TEXT,
  max          TEXT,
  reversed     INTEGER NOT NULL CHECK (reversed = 0 OR reversed = 1),
  PRIMARY KEY (projection, tenant_key, feature, bucket_start, dimensions, generation)
) STRICT, WITHOUT ROWID;

-- seq is the last event that was there when the seal was made.
CREATE TABLE fencepost_bucket_seals (
  tenant_key TEXT    NOT NULL CHECK (tenant_key <> ''),
  feature    TEXT    NOT NULL CHECK (feature <> ''),
  generation INTEGER NOT NULL,
  before     INTEGER NOT NULL,
  seq        INTEGER NOT NULL,
  sealed_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant_key, feature, generation)
) STRICT, WITHOUT ROWID;

-- before and seq rise with the generation: two searches say how many seals
-- cover a bucket and are older than an event.
CREATE UNIQUE INDEX fencepost_bucket_seals_before ON fencepost_bucket_seals (tenant_key, feature, before);
CREATE INDEX fencepost_bucket_seals_seq ON fencepost_bucket_seals (tenant_key, feature, seq);

-- How often outposts were answered. A version never falls.
CREATE TABLE fencepost_snapshots (
  tenant_key TEXT    NOT NULL CHECK (tenant_key <> ''),
  reducer    TEXT    NOT NULL CHECK (reducer <> ''),
  version    INTEGER NOT NULL,
  PRIMARY KEY (tenant_key, reducer)
) STRICT, WITHOUT ROWID;

-- What tenants may use, in the order in which it became visible.
CREATE TABLE fencepost_credits (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_key TEXT    NOT NULL CHECK (tenant_key <> ''),
  meter      TEXT    NOT NULL CHECK (meter <> ''),
  id         TEXT    NOT NULL CHECK (id <> ''),
  kind       TEXT    NOT NULL CHECK (kind = 'grant' OR kind = 'reset'),
  amount     TEXT    NOT NULL,
  reason     TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  UNIQUE (tenant_key, meter, id)
) STRICT;

CREATE INDEX fencepost_credits_tenant ON fencepost_credits (tenant_key, seq);

-- What hosts counted in memory and flushed, and which batches they flushed.
CREATE TABLE fencepost_counters (
  tenant_key   TEXT    NOT NULL CHECK (tenant_key <> ''),
  feature      TEXT    NOT NULL CHECK (feature <> ''),
  period_start INTEGER NOT NULL,
  period_end   INTEGER NOT NULL,
  value        TEXT    NOT NULL,
  PRIMARY KEY (tenant_key, feature, period_start)
) STRICT, WITHOUT ROWID;

CREATE TABLE fencepost_history (
  tenant_key TEXT    NOT NULL CHECK (tenant_key <> ''),
  feature    TEXT    NOT NULL CHECK (feature <> ''),
  start      INTEGER NOT NULL,
  value      TEXT    NOT NULL,
  PRIMARY KEY (tenant_key, feature, start)
) STRICT, WITHOUT ROWID;

CREATE TABLE fencepost_receipts (
  batch_id   TEXT    PRIMARY KEY CHECK (batch_id <> ''),
  owner      TEXT    NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX fencepost_receipts_applied ON fencepost_receipts (applied_at);

CREATE TABLE fencepost_subscriptions (
  tenant_key   TEXT    PRIMARY KEY CHECK (tenant_key <> ''),
  plan         TEXT    NOT NULL,
  plan_version TEXT    NOT NULL,
  anchor       INTEGER NOT NULL,
  interval     TEXT    NOT NULL,
  timezone     TEXT    NOT NULL,
  customers    TEXT,
  revision     INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE fencepost_mappings (
  version    TEXT    PRIMARY KEY CHECK (version <> ''),
  label      TEXT    NOT NULL,
  content    TEXT    NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE fencepost_routes (
  route               INTEGER PRIMARY KEY,
  exporter            TEXT    NOT NULL CHECK (exporter <> ''),
  destination_account TEXT    NOT NULL,
  mode                TEXT    NOT NULL,
  feature             TEXT    NOT NULL CHECK (feature <> ''),
  disposition         TEXT    NOT NULL CHECK (
    disposition = 'export' OR disposition = 'quarantine' OR disposition = 'ignore'),
  mapping_version     TEXT    NOT NULL,
  applies_after       INTEGER NOT NULL,
  created_at          INTEGER NOT NULL,
  retired_at          INTEGER
) STRICT;

-- One route in force for a feature at a destination.
CREATE UNIQUE INDEX fencepost_routes_in_force
  ON fencepost_routes (exporter, destination_account, mode, feature)
  WHERE retired_at IS NULL;

-- The intent: what is to be sent, to whom, under which identity. usage_at is the
-- time of the usage: of the event, or of what has no event.
CREATE TABLE fencepost_outbox_items (
  item                INTEGER PRIMARY KEY,
  tenant_key          TEXT    NOT NULL CHECK (tenant_key <> ''),
  subject_kind        TEXT    NOT NULL CHECK (
    subject_kind = 'event' OR subject_kind = 'correction' OR subject_kind = 'usage_window'),
  subject_ref         TEXT    NOT NULL,
  exporter            TEXT    NOT NULL,
  destination_account TEXT    NOT NULL,
  mode                TEXT    NOT NULL,
  mapping_version     TEXT    NOT NULL,
  digest              BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32),
  route               INTEGER NOT NULL REFERENCES fencepost_routes (route),
  event_seq           INTEGER,
  feature             TEXT    NOT NULL,
  customer            TEXT    NOT NULL DEFAULT '',
  payload             TEXT,
  created_at          INTEGER NOT NULL,
  depends_on          INTEGER,
  usage_at            INTEGER NOT NULL
) STRICT;

CREATE INDEX fencepost_outbox_items_event
  ON fencepost_outbox_items (event_seq) WHERE event_seq IS NOT NULL;

-- What a customer used in a stretch of time, for the sums that are compared with
-- a provider.
CREATE INDEX fencepost_outbox_items_usage
  ON fencepost_outbox_items (customer, feature, usage_at);

-- Items that take back what another one reports.
CREATE INDEX fencepost_outbox_items_dependent
  ON fencepost_outbox_items (depends_on) WHERE depends_on IS NOT NULL;

-- The one row of an item that moves. waits_for is the item whose transition
-- lets it be claimed, method how a correction is told, chosen once.
CREATE TABLE fencepost_outbox_state (
  item                INTEGER PRIMARY KEY,
  route               INTEGER NOT NULL,
  subject_key         BLOB    NOT NULL CHECK (length(subject_key) = 32),
  serial_key          TEXT    NOT NULL DEFAULT '',
  state               TEXT    NOT NULL CHECK (
    state = 'pending' OR state = 'leased' OR state = 'accepted' OR state = 'confirmed'
    OR state = 'uncertain' OR state = 'rejected' OR state = 'quarantined'),
  attempts            INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  attempt_budget      INTEGER NOT NULL,
  first_attempt_at    INTEGER,
  first_unresolved_at INTEGER,
  next_attempt_at     INTEGER,
  lease_owner         TEXT,
  claimed_at          INTEGER,
  lease_expires_at    INTEGER,
  lease_token         INTEGER NOT NULL DEFAULT 0,
  unresolved          INTEGER NOT NULL DEFAULT 0 CHECK (unresolved IN (0, 1)),
  provider_ref        TEXT,
  accepted_at         INTEGER,
  confirmed_at        INTEGER,
  confirmed_by        TEXT,
  disputed            TEXT,
  last_error          TEXT,
  quarantine_reason   TEXT,
  settled_at          INTEGER,
  superseded_by       INTEGER,
  waits_for           INTEGER,
  method              TEXT,
  CHECK (state <> 'leased' OR lease_expires_at IS NOT NULL),
  CHECK (state <> 'pending' OR next_attempt_at IS NOT NULL)
) STRICT;

-- At most one sendable item for a subject at a destination, whatever the
-- mapping: two would be two charges.
CREATE UNIQUE INDEX fencepost_outbox_state_subject
  ON fencepost_outbox_state (subject_key) WHERE superseded_by IS NULL;

CREATE INDEX fencepost_outbox_state_pending
  ON fencepost_outbox_state (route, next_attempt_at, item)
  WHERE state = 'pending' AND superseded_by IS NULL AND waits_for IS NULL;

CREATE INDEX fencepost_outbox_state_leased
  ON fencepost_outbox_state (route, lease_expires_at)
  WHERE state = 'leased';

CREATE INDEX fencepost_outbox_state_serial
  ON fencepost_outbox_state (serial_key, lease_expires_at)
  WHERE state = 'leased' AND serial_key <> '';

CREATE INDEX fencepost_outbox_state_attention
  ON fencepost_outbox_state (state, item)
  WHERE state <> 'pending' AND state <> 'leased' AND state <> 'accepted' AND state <> 'confirmed';

-- The gauges of what is accepted and not confirmed, and of evidence against
-- items.
CREATE INDEX fencepost_outbox_state_accepted
  ON fencepost_outbox_state (accepted_at)
  WHERE state = 'accepted' AND superseded_by IS NULL;

CREATE INDEX fencepost_outbox_state_disputed
  ON fencepost_outbox_state (item) WHERE disputed IS NOT NULL;

-- How many items stand where, kept in the transactions that move them: a
-- gauge must not scan the outbox.
CREATE TABLE fencepost_outbox_counts (
  route INTEGER NOT NULL,
  state TEXT    NOT NULL,
  items INTEGER NOT NULL,
  open  INTEGER NOT NULL,
  PRIMARY KEY (route, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE fencepost_attempts (
  item        INTEGER NOT NULL,
  n           INTEGER NOT NULL,
  lease_token INTEGER NOT NULL,
  owner       TEXT    NOT NULL,
  started_at  INTEGER,
  finished_at INTEGER,
  host_class  TEXT    NOT NULL,
  outcome     TEXT    NOT NULL,
  evidence    TEXT    NOT NULL,
  status      INTEGER NOT NULL,
  request_id  TEXT    NOT NULL,
  code        TEXT    NOT NULL,
  message     TEXT    NOT NULL,
  decided     TEXT    NOT NULL,
  fenced      INTEGER NOT NULL CHECK (fenced IN (0, 1)),
  recorded_at INTEGER NOT NULL,
  PRIMARY KEY (item, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX fencepost_attempts_fenced
  ON fencepost_attempts (item) WHERE fenced = 1;

-- What people and reconcilers did beside the loop.
CREATE TABLE fencepost_actions (
  action        INTEGER PRIMARY KEY,
  at            INTEGER NOT NULL,
  item          INTEGER,
  kind          TEXT    NOT NULL CHECK (kind <> ''),
  actor         TEXT    NOT NULL CHECK (actor <> ''),
  reason        TEXT    NOT NULL CHECK (reason <> ''),
  evidence_kind TEXT    NOT NULL,
  evidence      TEXT    NOT NULL,
  from_state    TEXT    NOT NULL,
  to_state      TEXT    NOT NULL,
  detail        TEXT
) STRICT;

CREATE INDEX fencepost_actions_item
  ON fencepost_actions (item, action) WHERE item IS NOT NULL;

-- How far a counter was reported to a destination, whatever the mapping; item
-- is the window on its way.
CREATE TABLE fencepost_report_bounds (
  exporter            TEXT    NOT NULL CHECK (exporter <> ''),
  destination_account TEXT    NOT NULL,
  mode                TEXT    NOT NULL,
  tenant_key          TEXT    NOT NULL CHECK (tenant_key <> ''),
  feature             TEXT    NOT NULL CHECK (feature <> ''),
  period_start        INTEGER NOT NULL,
  period_end          INTEGER NOT NULL,
  acked               TEXT    NOT NULL,
  staged_to           TEXT,
  item                INTEGER,
  updated_at          INTEGER NOT NULL,
  PRIMARY KEY (exporter, destination_account, mode, tenant_key, feature, period_start),
  CHECK ((staged_to IS NULL) = (item IS NULL))
) STRICT, WITHOUT ROWID;

-- The first period that durable events report; those before it belong to the
-- counter.
CREATE TABLE fencepost_cutovers (
  tenant_key   TEXT    NOT NULL CHECK (tenant_key <> ''),
  feature      TEXT    NOT NULL CHECK (feature <> ''),
  durable_from INTEGER NOT NULL,
  PRIMARY KEY (tenant_key, feature)
) STRICT, WITHOUT ROWID;

-- The hosts that live, and readings of their clocks beside ours. boottime is in
-- nanoseconds.
CREATE TABLE fencepost_hosts (
  host            TEXT    PRIMARY KEY CHECK (host <> ''),
  version         TEXT    NOT NULL,
  started_at      INTEGER NOT NULL,
  beat_at         INTEGER NOT NULL,
  flushed_through INTEGER,
  claims          INTEGER NOT NULL,
  noticed         INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE fencepost_clock_samples (
  sample   INTEGER PRIMARY KEY,
  host     TEXT    NOT NULL,
  boot_id  TEXT    NOT NULL,
  boottime INTEGER NOT NULL,
  store_at INTEGER NOT NULL
) STRICT;

-- Who does what only one host does at a time. owner is empty once given up.
CREATE TABLE fencepost_roles (
  role  TEXT    PRIMARY KEY CHECK (role <> ''),
  owner TEXT    NOT NULL,
  until INTEGER NOT NULL,
  fence INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Comparisons with a provider.
CREATE TABLE fencepost_reconciliations (
  run                 TEXT    PRIMARY KEY CHECK (run <> ''),
  exporter            TEXT    NOT NULL,
  destination_account TEXT    NOT NULL,
  mode                TEXT    NOT NULL,
  from_time           INTEGER NOT NULL,
  to_time             INTEGER NOT NULL,
  started_at          INTEGER NOT NULL,
  finished_at         INTEGER,
  error               TEXT    NOT NULL,
  lines               INTEGER NOT NULL,
  differing           INTEGER NOT NULL,
  confirmed           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX fencepost_reconciliations_started ON fencepost_reconciliations (started_at, run);

CREATE TABLE fencepost_reconciliation_lines (
  run        TEXT    NOT NULL,
  line       INTEGER NOT NULL,
  customer   TEXT    NOT NULL,
  feature    TEXT    NOT NULL,
  meter      TEXT    NOT NULL,
  from_time  INTEGER NOT NULL,
  to_time    INTEGER NOT NULL,
  recorded   TEXT    NOT NULL,
  reported   TEXT    NOT NULL,
  provider   TEXT,
  difference TEXT,
  cause      TEXT    NOT NULL,
  confirmed  INTEGER NOT NULL,
  PRIMARY KEY (run, line)
) STRICT, WITHOUT ROWID;

-- History never changes after commit, whoever asks. Only retention removes:
-- fencepost_pruning() is 1 on the adapter's connection while it does, and does
-- not exist on any other.

CREATE TRIGGER fencepost_events_no_update BEFORE UPDATE ON fencepost_events
BEGIN SELECT RAISE(ABORT, 'fencepost_events is immutable'); END;
CREATE TRIGGER fencepost_events_no_delete BEFORE DELETE ON fencepost_events
WHEN fencepost_pruning() IS NOT 1
BEGIN SELECT RAISE(ABORT, 'fencepost_events is immutable'); END;

-- The body goes with the last of the events.
CREATE TRIGGER fencepost_cloudevents_no_update BEFORE UPDATE ON fencepost_cloudevents
WHEN NOT (fencepost_pruning() IS 1
  AND NEW.body IS NULL
  AND NEW.tenant_key = OLD.tenant_key
  AND NEW.receipt_id = OLD.receipt_id
  AND NEW.source = OLD.source
  AND NEW.id = OLD.id
  AND NEW.type = OLD.type
  AND NEW.occurred_at = OLD.occurred_at
  AND NEW.dedupe_hash = OLD.dedupe_hash
  AND NEW.features = OLD.features
  AND NEW.seqs = OLD.seqs
  AND NEW.recorded_at = OLD.recorded_at)
BEGIN SELECT RAISE(ABORT, 'fencepost_cloudevents is immutable'); END;
CREATE TRIGGER fencepost_cloudevents_no_delete BEFORE DELETE ON fencepost_cloudevents
WHEN fencepost_pruning() IS NOT 1
BEGIN SELECT RAISE(ABORT, 'fencepost_cloudevents is immutable'); END;

CREATE TRIGGER fencepost_tombstones_no_update BEFORE UPDATE ON fencepost_tombstones
BEGIN SELECT RAISE(ABORT, 'fencepost_tombstones is immutable'); END;
CREATE TRIGGER fencepost_tombstones_no_delete BEFORE DELETE ON fencepost_tombstones
WHEN fencepost_pruning() IS NOT 1
BEGIN SELECT RAISE(ABORT, 'fencepost_tombstones is immutable'); END;

CREATE TRIGGER fencepost_bucket_seals_no_update BEFORE UPDATE ON fencepost_bucket_seals
BEGIN SELECT RAISE(ABORT, 'fencepost_bucket_seals is append-only'); END;
CREATE TRIGGER fencepost_bucket_seals_no_delete BEFORE DELETE ON fencepost_bucket_seals
BEGIN SELECT RAISE(ABORT, 'fencepost_bucket_seals is append-only'); END;

CREATE TRIGGER fencepost_credits_no_update BEFORE UPDATE ON fencepost_credits
BEGIN SELECT RAISE(ABORT, 'fencepost_credits is append-only'); END;
CREATE TRIGGER fencepost_credits_no_delete BEFORE DELETE ON fencepost_credits
BEGIN SELECT RAISE(ABORT, 'fencepost_credits is append-only'); END;

CREATE TRIGGER fencepost_receipts_no_update BEFORE UPDATE ON fencepost_receipts
BEGIN SELECT RAISE(ABORT, 'fencepost_receipts is append-only'); END;
CREATE TRIGGER fencepost_receipts_no_delete BEFORE DELETE ON fencepost_receipts
WHEN fencepost_pruning() IS NOT 1
BEGIN SELECT RAISE(ABORT, 'fencepost_receipts is append-only'); END;

CREATE TRIGGER fencepost_mappings_no_update BEFORE UPDATE ON fencepost_mappings
BEGIN SELECT RAISE(ABORT, 'fencepost_mappings is immutable'); END;
CREATE TRIGGER fencepost_mappings_no_delete BEFORE DELETE ON fencepost_mappings
BEGIN SELECT RAISE(ABORT, 'fencepost_mappings is immutable'); END;

CREATE TRIGGER fencepost_attempts_no_update BEFORE UPDATE ON fencepost_attempts
BEGIN SELECT RAISE(ABORT, 'fencepost_attempts is append-only'); END;
CREATE TRIGGER fencepost_attempts_no_delete BEFORE DELETE ON fencepost_attempts
WHEN fencepost_pruning() IS NOT 1
BEGIN SELECT RAISE(ABORT, 'fencepost_attempts is append-only'); END;

CREATE TRIGGER fencepost_actions_no_update BEFORE UPDATE ON fencepost_actions
BEGIN SELECT RAISE(ABORT, 'fencepost_actions is append-only'); END;
CREATE TRIGGER fencepost_actions_no_delete BEFORE DELETE ON fencepost_actions
BEGIN SELECT RAISE(ABORT, 'fencepost_actions is append-only'); END;

CREATE TRIGGER fencepost_cutovers_no_update BEFORE UPDATE ON fencepost_cutovers
BEGIN SELECT RAISE(ABORT, 'fencepost_cutovers is immutable'); END;
CREATE TRIGGER fencepost_cutovers_no_delete BEFORE DELETE ON fencepost_cutovers
BEGIN SELECT RAISE(ABORT, 'fencepost_cutovers is immutable'); END;

CREATE TRIGGER fencepost_reconciliations_no_update BEFORE UPDATE ON fencepost_reconciliations
WHEN OLD.finished_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'fencepost_reconciliations is immutable once finished'); END;
CREATE TRIGGER fencepost_reconciliation_lines_no_update BEFORE UPDATE ON fencepost_reconciliation_lines
BEGIN SELECT RAISE(ABORT, 'fencepost_reconciliation_lines is append-only'); END;

-- A customer that was unknown at enqueue may be filled in, once.
CREATE TRIGGER fencepost_outbox_items_no_update BEFORE UPDATE ON fencepost_outbox_items
WHEN NOT (OLD.customer = '' AND NEW.customer <> ''
  AND NEW.item = OLD.item
  AND NEW.tenant_key = OLD.tenant_key
  AND NEW.subject_kind = OLD.subject_kind
  AND NEW.subject_ref = OLD.subject_ref
  AND NEW.exporter = OLD.exporter
  AND NEW.destination_account = OLD.destination_account
  AND NEW.mode = OLD.mode
  AND NEW.mapping_version = OLD.mapping_version
  AND NEW.digest = OLD.digest
  AND NEW.route = OLD.route
  AND NEW.event_seq IS OLD.event_seq
  AND NEW.feature = OLD.feature
  AND NEW.payload IS OLD.payload
  AND NEW.created_at = OLD.created_at
  AND NEW.depends_on IS OLD.depends_on
  AND NEW.usage_at = OLD.usage_at)
BEGIN SELECT RAISE(ABORT, 'fencepost_outbox_items is immutable'); END;
CREATE TRIGGER fencepost_outbox_items_no_delete BEFORE DELETE ON fencepost_outbox_items
WHEN fencepost_pruning() IS NOT 1
BEGIN SELECT RAISE(ABORT, 'fencepost_outbox_items is immutable'); END;

-- A route is retired or given another exporter's name, never changed otherwise
-- and never removed.
CREATE TRIGGER fencepost_routes_no_update BEFORE UPDATE ON fencepost_routes
WHEN NOT ((OLD.retired_at IS NULL AND NEW.retired_at IS NOT NULL AND NEW.exporter = OLD.exporter
    OR NEW.retired_at IS OLD.retired_at AND NEW.exporter <> OLD.exporter)
  AND NEW.route = OLD.route
  AND NEW.destination_account = OLD.destination_account
  AND NEW.mode = OLD.mode
  AND NEW.feature = OLD.feature
  AND NEW.disposition = OLD.disposition
  AND NEW.mapping_version = OLD.mapping_version
  AND NEW.applies_after = OLD.applies_after
  AND NEW.created_at = OLD.created_at)
BEGIN SELECT RAISE(ABORT, 'fencepost_routes can only be retired or renamed'); END;
CREATE TRIGGER fencepost_routes_no_delete BEFORE DELETE ON fencepost_routes
BEGIN SELECT RAISE(ABORT, 'fencepost_routes is never deleted'); END;

-- What a subject is, how it is told and how often it was leased never goes back.
CREATE TRIGGER fencepost_outbox_state_fence BEFORE UPDATE ON fencepost_outbox_state
WHEN NEW.item <> OLD.item
  OR NEW.subject_key <> OLD.subject_key
  OR NEW.lease_token < OLD.lease_token
  OR (OLD.first_attempt_at IS NOT NULL AND NEW.first_attempt_at IS NOT OLD.first_attempt_at)
  OR (OLD.first_unresolved_at IS NOT NULL AND NEW.first_unresolved_at IS NOT OLD.first_unresolved_at)
  OR NEW.unresolved < OLD.unresolved
  OR (OLD.method IS NOT NULL AND NEW.method IS NOT OLD.method)
  OR (OLD.superseded_by IS NOT NULL AND NEW.superseded_by IS NOT OLD.superseded_by)
BEGIN SELECT RAISE(ABORT, 'fencepost_outbox_state: a write-once column changed'); END;

-- An item as one row, for people and tools.
CREATE VIEW fencepost_outbox AS
SELECT i.item, i.tenant_key, i.subject_kind, i.subject_ref, i.exporter,
       i.destination_account, i.mode, i.mapping_version,
       'fencepost_' || lower(hex(i.digest)) AS identifier,
       i.route, i.event_seq, i.feature, i.customer, i.payload, i.created_at,
       s.subject_key, s.serial_key, s.state, s.attempts, s.attempt_budget,
       s.first_attempt_at, s.first_unresolved_at, s.next_attempt_at,
       s.lease_owner, s.claimed_at, s.lease_expires_at, s.lease_token,
       s.unresolved, s.provider_ref, s.accepted_at, s.confirmed_at,
       s.confirmed_by, s.disputed, s.last_error, s.quarantine_reason,
       s.settled_at, s.superseded_by, i.depends_on, s.waits_for, s.method, i.usage_at
FROM fencepost_outbox_items AS i
JOIN fencepost_outbox_state AS s ON s.item = i.item;
