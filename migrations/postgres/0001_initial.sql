-- {schema} is the schema that the store was configured with. Keys compare by
-- bytes (COLLATE "C"), as Go compares them. tenant_key leads every key of tenant
-- data, so that rows can move to other stores by tenant.
--
-- There are no foreign keys: checking one locks the row it points to, and the
-- lock of a row that every record points to is a multixact for each record.
--
-- Documents that are only handed back are text: jsonb would change them.

CREATE TABLE {schema}.fencepost_meta (
  key   text   COLLATE "C" PRIMARY KEY,
  value bigint NOT NULL
);

INSERT INTO {schema}.fencepost_meta (key, value) VALUES ('routes_revision', 0);

-- Which store this is and how far it has come. A copy of the database is the
-- same store. claims is raised by every claim that takes something, in its
-- transaction and held to its commit: a copy that lacks a claim is behind by it. A
-- sequence would be noted ahead of what is committed. restores counts how often
-- an operator said that the store went back, and restored_through up to when.
CREATE TABLE {schema}.fencepost_store (
  scope    integer PRIMARY KEY CHECK (scope = 1),
  id       text    NOT NULL DEFAULT gen_random_uuid(),
  claims   bigint  NOT NULL DEFAULT 0,
  restores bigint  NOT NULL DEFAULT 0,
  restored_through timestamptz
) WITH (fillfactor = 10);

INSERT INTO {schema}.fencepost_store (scope) VALUES (1);

-- The cluster and its timeline; the store's id and zero where the server does
-- not tell this role.
CREATE FUNCTION {schema}.fencepost_cluster(OUT system text, OUT timeline bigint) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  SELECT c.system_identifier::text, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
  INTO system, timeline FROM pg_control_system() AS c;
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR object_not_in_prerequisite_state THEN
  SELECT s.id, 0 INTO system, timeline FROM {schema}.fencepost_store AS s WHERE s.scope = 1;
END $$;

-- Insertion identities. CACHE 1: a value that a session keeps for later would
-- be handed out below a watermark.
CREATE SEQUENCE {schema}.fencepost_event_seq AS bigint CACHE 1;
CREATE SEQUENCE {schema}.fencepost_item_seq  AS bigint CACHE 1;

-- The generations of the projections, and the build that is under way. last is
-- the highest number ever given. In totals and buckets generation 0 is what
-- retention removed, and -building is the seed of a build.
CREATE TABLE {schema}.fencepost_generations (
  scope        integer PRIMARY KEY CHECK (scope = 1),
  active       bigint  NOT NULL,
  building     bigint,
  previous     bigint,
  last         bigint  NOT NULL,
  watermark    bigint  NOT NULL DEFAULT 0,
  cursor       bigint  NOT NULL DEFAULT 0,
  paused       boolean NOT NULL DEFAULT false,
  drained      boolean NOT NULL DEFAULT false,
  begun_at     timestamptz,
  activated_at timestamptz,
  active_settings   text NOT NULL DEFAULT '',
  building_settings text NOT NULL DEFAULT ''
);

INSERT INTO {schema}.fencepost_generations (scope, active, last) VALUES (1, 1, 1);

-- quantity is what was used, or of a correction the magnitude; effect is what
-- the event adds to the totals.
CREATE TABLE {schema}.fencepost_events (
  seq               bigint         NOT NULL DEFAULT nextval('{schema}.fencepost_event_seq'),
  tenant_key        text           COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  event_id          text           COLLATE "C" NOT NULL CHECK (event_id <> ''),
  feature           text           COLLATE "C" NOT NULL,
  quantity          numeric(38,12) NOT NULL CHECK (quantity <> 'NaN'),
  effect            numeric(38,12) NOT NULL CHECK (effect <> 'NaN'),
  kind              text           COLLATE "C" NOT NULL CHECK (kind IN ('usage', 'correction')),
  reverses          boolean        NOT NULL DEFAULT false,
  original_event_id text           COLLATE "C",
  occurred_at       timestamptz    NOT NULL,
  period_start      timestamptz    NOT NULL,
  period_end        timestamptz    NOT NULL,
  period_source     text           NOT NULL,
  plan              text,
  plan_version      text,
  dimensions        jsonb,
  metadata          text,
  payload_hash      bytea          NOT NULL CHECK (length(payload_hash) = 32),
  dedupe_hash       bytea          NOT NULL CHECK (length(dedupe_hash) = 32),
  recorded_at       timestamptz    NOT NULL,
  PRIMARY KEY (tenant_key, event_id),
  CONSTRAINT fencepost_events_seq UNIQUE (seq),
  CONSTRAINT fencepost_events_correction CHECK (
    CASE kind WHEN 'usage' THEN original_event_id IS NULL AND NOT reverses AND effect = quantity
         ELSE original_event_id IS NOT NULL AND quantity > 0 AND abs(effect) = quantity END)
);

-- A stretch of usage is looked for by reconciliation alone. This costs a record
-- nothing.
CREATE INDEX fencepost_events_occurred
  ON {schema}.fencepost_events USING brin (occurred_at) WITH (pages_per_range = 16);

CREATE INDEX fencepost_events_corrections
  ON {schema}.fencepost_events (tenant_key, original_event_id)
  WHERE original_event_id IS NOT NULL;

-- What is left of an event that retention removed: a late repeat of it is
-- still a duplicate or a conflict.
CREATE TABLE {schema}.fencepost_tombstones (
  tenant_key  text        COLLATE "C" NOT NULL,
  event_id    text        COLLATE "C" NOT NULL,
  seq         bigint      NOT NULL UNIQUE,
  feature     text        COLLATE "C" NOT NULL,
  dedupe_hash bytea       NOT NULL CHECK (length(dedupe_hash) = 32),
  receipt_id  text        COLLATE "C", -- of the CloudEvent that it came with
  pruned_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_key, event_id)
);

CREATE INDEX fencepost_tombstones_pruned ON {schema}.fencepost_tombstones (pruned_at);

-- Events of the feature that occurred before this time may have been removed.
-- buckets is the revision of the feature's settings under which all of them went
-- into its buckets; -1 when there were none, or other ones for some.
CREATE TABLE {schema}.fencepost_pruned (
  tenant_key text        COLLATE "C" NOT NULL,
  feature    text        COLLATE "C" NOT NULL,
  before     timestamptz NOT NULL,
  buckets    bigint      NOT NULL,
  PRIMARY KEY (tenant_key, feature)
);

-- The first receipt of a CloudEvent. event_ids are the events that it became,
-- in the order of features.
CREATE TABLE {schema}.fencepost_cloudevents (
  tenant_key  text        COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  receipt_id  text        COLLATE "C" NOT NULL CHECK (receipt_id <> ''),
  source      text        NOT NULL,
  id          text        NOT NULL,
  type        text        NOT NULL,
  occurred_at timestamptz NOT NULL,
  dedupe_hash bytea       NOT NULL CHECK (length(dedupe_hash) = 32),
  features    text[]      NOT NULL,
  event_ids   text[]      COLLATE "C" NOT NULL,
  body        text,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_key, receipt_id)
);

-- A receipt is recorded at the very instant of its events: by that retention
-- finds the receipts of what it removes. Receipts that fed nothing it looks for
-- by their age.
CREATE INDEX fencepost_cloudevents_recorded
  ON {schema}.fencepost_cloudevents USING brin (recorded_at) WITH (pages_per_range = 16);

CREATE INDEX fencepost_cloudevents_unmatched
  ON {schema}.fencepost_cloudevents (recorded_at) WHERE event_ids = '{}';

-- Room on each page: an update whose new version fits beside the old one
-- touches no index. The check is a backstop: it sees what an upsert proposes,
-- so a negative amount needs a row that exists first.
CREATE TABLE {schema}.fencepost_totals (
  tenant_key   text           COLLATE "C" NOT NULL,
  feature      text           COLLATE "C" NOT NULL,
  period_start timestamptz    NOT NULL,
  generation   bigint         NOT NULL,
  period_end   timestamptz    NOT NULL,
  quantity     numeric(50,12) NOT NULL CHECK (quantity <> 'NaN'),
  events       bigint         NOT NULL,
  count        bigint         NOT NULL,
  signed       boolean        NOT NULL,
  PRIMARY KEY (tenant_key, feature, period_start, generation),
  CONSTRAINT fencepost_totals_not_negative CHECK (signed OR quantity >= 0)
) WITH (fillfactor = 50);

CREATE INDEX fencepost_totals_set_aside
  ON {schema}.fencepost_totals (generation, tenant_key, feature, period_start)
  WHERE generation <= 0;

-- Sums over five minutes. generation counts the seals of the bucket; projection
-- is the generation of the projections. dimensions is a JSON object with sorted
-- keys.
CREATE TABLE {schema}.fencepost_buckets (
  tenant_key   text           COLLATE "C" NOT NULL,
  feature      text           COLLATE "C" NOT NULL,
  bucket_start timestamptz    NOT NULL,
  dimensions   text           COLLATE "C" NOT NULL,
  generation   integer        NOT NULL,
  projection   bigint         NOT NULL,
  sum          numeric(50,12) NOT NULL CHECK (sum <> 'NaN'),
  count        bigint         NOT NULL,
  min          numeric(38,12),
  max          numeric(38,12),
  reversed     boolean        NOT NULL,
  PRIMARY KEY (tenant_key, feature, bucket_start, dimensions, generation, projection)
) WITH (fillfactor = 50);

CREATE INDEX fencepost_buckets_set_aside
  ON {schema}.fencepost_buckets (projection, tenant_key, feature, bucket_start)
  WHERE projection <= 0;

-- Every bucket that starts before a time was sealed at a generation. seq is the
-- highest of an event at that moment: a build puts an event where it counted
-- when it was recorded.
CREATE TABLE {schema}.fencepost_bucket_seals (
  tenant_key    text        COLLATE "C" NOT NULL,
  feature       text        COLLATE "C" NOT NULL,
  generation    integer     NOT NULL,
  before        timestamptz NOT NULL,
  seq           bigint      NOT NULL,
  sealed_at     timestamptz NOT NULL,
  PRIMARY KEY (tenant_key, feature, generation)
);

-- before and seq rise with the generation.
CREATE UNIQUE INDEX fencepost_bucket_seals_before
  ON {schema}.fencepost_bucket_seals (tenant_key, feature, before);

CREATE INDEX fencepost_bucket_seals_seq
  ON {schema}.fencepost_bucket_seals (tenant_key, feature, seq, generation);

-- How often outposts were answered. The row is the lock that orders the answers
-- of a reducer, and its version never falls.
CREATE TABLE {schema}.fencepost_snapshots (
  tenant_key text   COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  reducer    text   COLLATE "C" NOT NULL CHECK (reducer <> ''),
  version    bigint NOT NULL,
  PRIMARY KEY (tenant_key, reducer)
) WITH (fillfactor = 50);

-- What tenants may use. Written under a lock of the tenant, so that seq is the
-- order in which they become visible.
CREATE TABLE {schema}.fencepost_credits (
  seq        bigint         GENERATED ALWAYS AS IDENTITY,
  tenant_key text           COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  meter      text           COLLATE "C" NOT NULL CHECK (meter <> ''),
  id         text           COLLATE "C" NOT NULL CHECK (id <> ''),
  kind       text           COLLATE "C" NOT NULL CHECK (kind IN ('grant', 'reset')),
  amount     numeric(38,12) NOT NULL CHECK (amount <> 'NaN'),
  reason     text           NOT NULL,
  created_at timestamptz    NOT NULL,
  PRIMARY KEY (tenant_key, meter, id),
  CONSTRAINT fencepost_credits_seq UNIQUE (tenant_key, seq)
);

CREATE TABLE {schema}.fencepost_counters (
  tenant_key   text           COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  feature      text           COLLATE "C" NOT NULL CHECK (feature <> ''),
  period_start timestamptz    NOT NULL,
  period_end   timestamptz    NOT NULL,
  value        numeric(50,12) NOT NULL CHECK (value <> 'NaN'),
  updated_at   timestamptz    NOT NULL,
  PRIMARY KEY (tenant_key, feature, period_start)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.fencepost_history (
  tenant_key text           COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  feature    text           COLLATE "C" NOT NULL CHECK (feature <> ''),
  step_start timestamptz    NOT NULL,
  value      numeric(50,12) NOT NULL CHECK (value <> 'NaN'),
  PRIMARY KEY (tenant_key, feature, step_start)
) WITH (fillfactor = 50);

-- Which batches of counters were applied.
CREATE TABLE {schema}.fencepost_receipts (
  batch_id   text        COLLATE "C" PRIMARY KEY CHECK (batch_id <> ''),
  owner      text        NOT NULL,
  applied_at timestamptz NOT NULL
);

CREATE INDEX fencepost_receipts_applied ON {schema}.fencepost_receipts (applied_at);

CREATE TABLE {schema}.fencepost_subscriptions (
  tenant_key    text        COLLATE "C" PRIMARY KEY CHECK (tenant_key <> ''),
  plan          text        NOT NULL,
  plan_version  text        NOT NULL,
  anchor        timestamptz NOT NULL,
  interval_unit text        NOT NULL,
  timezone      text        NOT NULL,
  customers     text,
  revision      bigint      NOT NULL,
  updated_at    timestamptz NOT NULL
);

CREATE TABLE {schema}.fencepost_features (
  feature    text        COLLATE "C" PRIMARY KEY CHECK (feature <> ''),
  signed     boolean     NOT NULL,
  buckets    text[],
  revision   bigint      NOT NULL,
  updated_at timestamptz NOT NULL
);

CREATE TABLE {schema}.fencepost_mappings (
  version    text        COLLATE "C" PRIMARY KEY CHECK (version <> ''),
  label      text        NOT NULL,
  content    text        NOT NULL,
  created_at timestamptz NOT NULL
);

CREATE TABLE {schema}.fencepost_routes (
  route               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  exporter            text        COLLATE "C" NOT NULL CHECK (exporter <> ''),
  destination_account text        COLLATE "C" NOT NULL,
  mode                text        COLLATE "C" NOT NULL,
  feature             text        COLLATE "C" NOT NULL CHECK (feature <> ''),
  disposition         text        NOT NULL CHECK (disposition IN ('export', 'quarantine', 'ignore')),
  mapping_version     text        COLLATE "C" NOT NULL,
  applies_after       bigint      NOT NULL,
  created_at          timestamptz NOT NULL,
  retired_at          timestamptz
);

-- One route in force for a feature at a destination.
CREATE UNIQUE INDEX fencepost_routes_in_force
  ON {schema}.fencepost_routes (exporter, destination_account, mode, feature)
  WHERE retired_at IS NULL;

-- The intent: what is to be sent, to whom, under which identity. depends_on is
-- the item of the original, for the item of a correction; usage_at the time of
-- what has no event.
CREATE TABLE {schema}.fencepost_outbox_items (
  item                bigint      PRIMARY KEY,
  tenant_key          text        COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  subject_kind        text        COLLATE "C" NOT NULL CHECK (
    subject_kind IN ('event', 'correction', 'usage_window')),
  subject_ref         text        COLLATE "C" NOT NULL,
  exporter            text        COLLATE "C" NOT NULL,
  destination_account text        COLLATE "C" NOT NULL,
  mode                text        COLLATE "C" NOT NULL,
  mapping_version     text        COLLATE "C" NOT NULL,
  digest              bytea       NOT NULL CHECK (length(digest) = 32),
  route               bigint      NOT NULL,
  event_seq           bigint,
  feature             text        COLLATE "C" NOT NULL,
  customer            text        NOT NULL DEFAULT '',
  payload             text,
  created_at          timestamptz NOT NULL,
  depends_on          bigint,
  usage_at            timestamptz,
  subject_key         bytea       NOT NULL CHECK (length(subject_key) = 32),
  superseded          boolean     NOT NULL DEFAULT false,
  CONSTRAINT fencepost_outbox_items_digest UNIQUE (digest)
);

-- At most one sendable item for a subject at a destination, whatever the
-- mapping: two would be two charges. It is here and not at the row that moves,
-- because each move would write one more entry at a random place. superseded is
-- set by the statement that sets superseded_by there.
CREATE UNIQUE INDEX fencepost_outbox_items_subject
  ON {schema}.fencepost_outbox_items (subject_key) WHERE NOT superseded;

CREATE INDEX fencepost_outbox_items_event
  ON {schema}.fencepost_outbox_items (event_seq) WHERE event_seq IS NOT NULL;

CREATE INDEX fencepost_outbox_items_depends
  ON {schema}.fencepost_outbox_items (depends_on, item) WHERE depends_on IS NOT NULL;

CREATE INDEX fencepost_outbox_items_usage
  ON {schema}.fencepost_outbox_items (route, usage_at)
  WHERE usage_at IS NOT NULL;

-- The one row of an item that moves. Half of a page is left free: the next version
-- of a row that was inserted stays on its page, and those before it make room for
-- the one after. waits_for is the item that must move before
-- this one may be claimed; it is set at the insert and cleared once. method says
-- how a correction is told.
CREATE TABLE {schema}.fencepost_outbox_state (
  item                bigint      PRIMARY KEY,
  route               bigint      NOT NULL,
  serial_key          text        COLLATE "C" NOT NULL DEFAULT '',
  state               text        COLLATE "C" NOT NULL CHECK (state IN (
    'pending', 'leased', 'accepted', 'confirmed', 'uncertain', 'rejected', 'quarantined')),
  attempts            integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  attempt_budget      integer     NOT NULL,
  first_attempt_at    timestamptz,
  first_unresolved_at timestamptz,
  next_attempt_at     timestamptz,
  lease_owner         text,
  claimed_at          timestamptz,
  lease_expires_at    timestamptz,
  lease_token         bigint      NOT NULL DEFAULT 0,
  unresolved          boolean     NOT NULL DEFAULT false,
  provider_ref        text,
  accepted_at         timestamptz,
  confirmed_at        timestamptz,
  confirmed_by        text,
  disputed            text,
  last_error          text,
  quarantine_reason   text,
  settled_at          timestamptz,
  superseded_by       bigint,
  waits_for           bigint,
  method              text,
  CHECK (state <> 'leased' OR lease_expires_at IS NOT NULL AND waits_for IS NULL),
  CHECK (state <> 'pending' OR next_attempt_at IS NOT NULL)
) WITH (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX fencepost_outbox_state_pending
  ON {schema}.fencepost_outbox_state (route, next_attempt_at, item)
  WHERE state = 'pending' AND superseded_by IS NULL AND waits_for IS NULL;

CREATE INDEX fencepost_outbox_state_waiting
  ON {schema}.fencepost_outbox_state (waits_for, item)
  WHERE waits_for IS NOT NULL AND superseded_by IS NULL;

CREATE INDEX fencepost_outbox_state_oldest
  ON {schema}.fencepost_outbox_state (item)
  WHERE state = 'pending' AND superseded_by IS NULL;

CREATE INDEX fencepost_outbox_state_leased
  ON {schema}.fencepost_outbox_state (route, lease_expires_at, item)
  WHERE state = 'leased';

CREATE INDEX fencepost_outbox_state_serial
  ON {schema}.fencepost_outbox_state (serial_key) INCLUDE (lease_expires_at)
  WHERE state = 'leased' AND serial_key <> '';

CREATE INDEX fencepost_outbox_state_attention
  ON {schema}.fencepost_outbox_state (state, item)
  WHERE state IN ('uncertain', 'rejected', 'quarantined');

CREATE INDEX fencepost_outbox_state_disputed
  ON {schema}.fencepost_outbox_state (item) WHERE disputed IS NOT NULL;

-- How long the oldest accepted item has not been confirmed, and which ones.
CREATE INDEX fencepost_outbox_state_accepted
  ON {schema}.fencepost_outbox_state (accepted_at, item)
  WHERE state = 'accepted' AND superseded_by IS NULL;

-- How many items stand where, kept in the transactions that move them: a
-- gauge must not scan the outbox. Each transaction appends what it moved, so
-- that none waits for another; the gauge is the sum, folded from time to time.
CREATE TABLE {schema}.fencepost_outbox_counts (
  route bigint NOT NULL,
  state text   COLLATE "C" NOT NULL,
  items bigint NOT NULL,
  open  bigint NOT NULL
);

CREATE TABLE {schema}.fencepost_attempts (
  attempt     bigint      GENERATED ALWAYS AS IDENTITY,
  item        bigint      NOT NULL,
  lease_token bigint      NOT NULL,
  owner       text        NOT NULL,
  started_at  timestamptz,
  finished_at timestamptz,
  host_class  text        NOT NULL,
  outcome     text        NOT NULL,
  evidence    text        NOT NULL,
  status      integer     NOT NULL,
  request_id  text        NOT NULL,
  code        text        NOT NULL,
  message     text        NOT NULL,
  decided     text        NOT NULL,
  fenced      boolean     NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (item, attempt)
);

CREATE INDEX fencepost_attempts_fenced
  ON {schema}.fencepost_attempts (attempt) WHERE fenced;

-- What people and reconcilers did to items and routes. It outlives both.
CREATE TABLE {schema}.fencepost_actions (
  action        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at            timestamptz NOT NULL,
  item          bigint,
  kind          text        COLLATE "C" NOT NULL CHECK (kind IN ('resolve', 'requeue', 'supersede', 'abandon',
    'evidence', 'confirm', 'restore', 'adopt', 'backfill', 'route')),
  actor         text        NOT NULL CHECK (actor <> ''),
  reason        text        NOT NULL CHECK (reason <> ''),
  evidence_kind text        NOT NULL,
  evidence      text        NOT NULL,
  from_state    text        NOT NULL,
  to_state      text        NOT NULL,
  detail        text
);

CREATE INDEX fencepost_actions_item
  ON {schema}.fencepost_actions (item, action) WHERE item IS NOT NULL;

-- How far a counter has been reported to a destination; staged_to and item are
-- set while a window is on its way. Never removed: what is forgotten here would
-- be reported again.
CREATE TABLE {schema}.fencepost_report_bounds (
  tenant_key          text           COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  feature             text           COLLATE "C" NOT NULL CHECK (feature <> ''),
  period_start        timestamptz    NOT NULL,
  exporter            text           COLLATE "C" NOT NULL CHECK (exporter <> ''),
  destination_account text           COLLATE "C" NOT NULL,
  mode                text           COLLATE "C" NOT NULL,
  period_end          timestamptz    NOT NULL,
  acked               numeric(50,12) NOT NULL CHECK (acked <> 'NaN'),
  staged_to           numeric(50,12) CHECK (staged_to <> 'NaN'),
  item                bigint,
  updated_at          timestamptz    NOT NULL,
  PRIMARY KEY (tenant_key, feature, period_start, exporter, destination_account, mode),
  CHECK ((staged_to IS NULL) = (item IS NULL))
) WITH (fillfactor = 50);

-- Pages go by destination.
CREATE UNIQUE INDEX fencepost_report_bounds_page
  ON {schema}.fencepost_report_bounds (exporter, destination_account, mode, tenant_key, feature, period_start);

CREATE INDEX fencepost_report_bounds_staged
  ON {schema}.fencepost_report_bounds (exporter, destination_account, mode, tenant_key, feature, period_start)
  WHERE staged_to IS NOT NULL;

-- The first period of a feature that durable events report for a tenant.
CREATE TABLE {schema}.fencepost_cutovers (
  tenant_key   text        COLLATE "C" NOT NULL CHECK (tenant_key <> ''),
  feature      text        COLLATE "C" NOT NULL CHECK (feature <> ''),
  durable_from timestamptz NOT NULL,
  decided_at   timestamptz NOT NULL,
  PRIMARY KEY (tenant_key, feature)
);

-- Hosts that beat. One that left is kept for a while: its last beat may be the
-- latest there was.
CREATE TABLE {schema}.fencepost_hosts (
  host            text        COLLATE "C" PRIMARY KEY CHECK (host <> ''),
  version         text        NOT NULL,
  started_at      timestamptz NOT NULL,
  beat_at         timestamptz NOT NULL,
  left_at         timestamptz,
  flushed_through timestamptz,
  claims          bigint      NOT NULL,
  noticed         timestamptz
) WITH (fillfactor = 50);

-- The clock of the database beside that of a machine, in nanoseconds since its
-- boot. Ordered by the row: the clock is what is in doubt.
CREATE TABLE {schema}.fencepost_clock_samples (
  sample   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  host     text        COLLATE "C" NOT NULL,
  boot_id  text        COLLATE "C" NOT NULL CHECK (boot_id <> ''),
  boottime bigint      NOT NULL,
  store_at timestamptz NOT NULL
);

CREATE INDEX fencepost_clock_samples_at ON {schema}.fencepost_clock_samples (store_at);

-- Who does what only one may do at a time. fence rises with every change of
-- owner.
CREATE TABLE {schema}.fencepost_roles (
  role       text        COLLATE "C" PRIMARY KEY CHECK (role <> ''),
  owner      text        NOT NULL,
  held_until timestamptz NOT NULL,
  fence      bigint      NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {schema}.fencepost_reconciliations (
  id                  text        COLLATE "C" PRIMARY KEY CHECK (id <> ''),
  exporter            text        COLLATE "C" NOT NULL,
  destination_account text        COLLATE "C" NOT NULL,
  mode                text        COLLATE "C" NOT NULL,
  from_at             timestamptz NOT NULL,
  to_at               timestamptz NOT NULL,
  started_at          timestamptz NOT NULL,
  finished_at         timestamptz,
  error               text        NOT NULL,
  lines               bigint      NOT NULL,
  differing           bigint      NOT NULL,
  confirmed           bigint      NOT NULL
);

CREATE INDEX fencepost_reconciliations_started ON {schema}.fencepost_reconciliations (started_at, id);

CREATE TABLE {schema}.fencepost_reconciliation_lines (
  id         text           COLLATE "C" NOT NULL,
  line       bigint         NOT NULL,
  customer   text           NOT NULL,
  feature    text           COLLATE "C" NOT NULL,
  meter      text           NOT NULL,
  from_at    timestamptz    NOT NULL,
  to_at      timestamptz    NOT NULL,
  recorded   numeric(50,12) NOT NULL,
  reported   numeric(50,12) NOT NULL,
  provider   numeric(50,12),
  difference numeric(50,12),
  cause      text           NOT NULL,
  confirmed  bigint         NOT NULL,
  PRIMARY KEY (id, line)
);

-- History never changes after commit, whoever asks. Retention deletes in a
-- transaction that sets fencepost.prune to on, for itself alone.

CREATE FUNCTION {schema}.fencepost_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is immutable', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_events
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_events
  FOR EACH ROW WHEN (current_setting('fencepost.prune', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_events
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_tombstones
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_tombstones
  FOR EACH ROW WHEN (current_setting('fencepost.prune', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_tombstones
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

-- Retention may take the body out, and nothing else.
CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_cloudevents
  FOR EACH ROW WHEN (NOT (current_setting('fencepost.prune', true) IS NOT DISTINCT FROM 'on'
    AND NEW.body IS NULL
    AND NEW.tenant_key = OLD.tenant_key
    AND NEW.receipt_id = OLD.receipt_id
    AND NEW.source = OLD.source
    AND NEW.id = OLD.id
    AND NEW.type = OLD.type
    AND NEW.occurred_at = OLD.occurred_at
    AND NEW.dedupe_hash = OLD.dedupe_hash
    AND NEW.features = OLD.features
    AND NEW.event_ids = OLD.event_ids
    AND NEW.recorded_at = OLD.recorded_at))
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_cloudevents
  FOR EACH ROW WHEN (current_setting('fencepost.prune', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_cloudevents
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_bucket_seals
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_bucket_seals
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_bucket_seals
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_credits
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_credits
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_credits
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_mappings
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_mappings
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_mappings
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_attempts
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_attempts
  FOR EACH ROW WHEN (current_setting('fencepost.prune', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_attempts
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

-- A customer that was unknown at enqueue may be filled in, once, and an item may
-- be superseded.
CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_outbox_items
  FOR EACH ROW WHEN (NOT (
    (OLD.customer = '' AND NEW.customer <> '' AND NEW.superseded = OLD.superseded
     OR NEW.customer = OLD.customer AND NEW.superseded AND NOT OLD.superseded)
    AND NEW.subject_key = OLD.subject_key
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
    AND NEW.event_seq IS NOT DISTINCT FROM OLD.event_seq
    AND NEW.feature = OLD.feature
    AND NEW.payload IS NOT DISTINCT FROM OLD.payload
    AND NEW.created_at = OLD.created_at
    AND NEW.depends_on IS NOT DISTINCT FROM OLD.depends_on
    AND NEW.usage_at IS NOT DISTINCT FROM OLD.usage_at))
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_outbox_items
  FOR EACH ROW WHEN (current_setting('fencepost.prune', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_outbox_items
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

-- A route is retired, never changed and never removed. An exporter gets another
-- name in a transaction that sets fencepost.rename to on, for itself alone.
CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_routes
  FOR EACH ROW WHEN (NOT ((OLD.retired_at IS NULL AND NEW.retired_at IS NOT NULL AND NEW.exporter = OLD.exporter
      OR current_setting('fencepost.rename', true) IS NOT DISTINCT FROM 'on'
       AND NEW.retired_at IS NOT DISTINCT FROM OLD.retired_at)
    AND NEW.route = OLD.route
    AND NEW.destination_account = OLD.destination_account
    AND NEW.mode = OLD.mode
    AND NEW.feature = OLD.feature
    AND NEW.disposition = OLD.disposition
    AND NEW.mapping_version = OLD.mapping_version
    AND NEW.applies_after = OLD.applies_after
    AND NEW.created_at = OLD.created_at))
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_routes
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_routes
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_actions
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_actions
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_actions
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

CREATE TRIGGER no_update BEFORE UPDATE ON {schema}.fencepost_cutovers
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_cutovers
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_cutovers
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

-- A bound moves, and stays.
CREATE TRIGGER fence BEFORE UPDATE ON {schema}.fencepost_report_bounds
  FOR EACH ROW WHEN (NEW.tenant_key <> OLD.tenant_key
    OR NEW.feature <> OLD.feature
    OR NEW.period_start <> OLD.period_start
    OR (NEW.exporter <> OLD.exporter AND current_setting('fencepost.rename', true) IS DISTINCT FROM 'on')
    OR NEW.destination_account <> OLD.destination_account
    OR NEW.mode <> OLD.mode
    OR (NEW.acked <> OLD.acked AND NEW.acked IS DISTINCT FROM OLD.staged_to))
  EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_delete BEFORE DELETE ON {schema}.fencepost_report_bounds
  FOR EACH ROW EXECUTE FUNCTION {schema}.fencepost_immutable();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.fencepost_report_bounds
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fencepost_immutable();

-- How often an item was leased never goes back, and neither does how it was
-- told. After the update, and as good: before it, each row would be locked once
-- more to be compared.
CREATE TRIGGER fence AFTER UPDATE ON {schema}.fencepost_outbox_state
  FOR EACH ROW WHEN (NEW.item <> OLD.item
    OR NEW.lease_token < OLD.lease_token
    OR (OLD.first_attempt_at IS NOT NULL AND NEW.first_attempt_at IS DISTINCT FROM OLD.first_attempt_at)
    OR (OLD.first_unresolved_at IS NOT NULL AND NEW.first_unresolved_at IS DISTINCT FROM OLD.first_unresolved_at)
    OR (OLD.unresolved AND NOT NEW.unresolved)
    OR (OLD.method IS NOT NULL AND NEW.method IS DISTINCT FROM OLD.method)
    OR (OLD.superseded_by IS NOT NULL AND NEW.superseded_by IS DISTINCT FROM OLD.superseded_by)
    OR (NEW.waits_for IS NOT NULL AND NEW.waits_for IS DISTINCT FROM OLD.waits_for))
  EXECUTE FUNCTION {schema}.fencepost_immutable();

-- An item as one row, for people and tools.
CREATE VIEW {schema}.fencepost_outbox AS
SELECT i.item, i.tenant_key, i.subject_kind, i.subject_ref, i.exporter,
       i.destination_account, i.mode, i.mapping_version,
       'fencepost_' || encode(i.digest, 'hex') AS identifier,
       i.route, i.event_seq, i.feature, i.customer, i.payload, i.created_at,
       i.subject_key, s.serial_key, s.state, s.attempts, s.attempt_budget,
       s.first_attempt_at, s.first_unresolved_at, s.next_attempt_at,
       s.lease_owner, s.claimed_at, s.lease_expires_at, s.lease_token,
       s.unresolved, s.provider_ref, s.accepted_at, s.confirmed_at,
       s.confirmed_by, s.disputed, s.last_error, s.quarantine_reason,
       s.settled_at, s.superseded_by, i.depends_on, s.waits_for, s.method, i.usage_at
FROM {schema}.fencepost_outbox_items AS i
JOIN {schema}.fencepost_outbox_state AS s ON s.item = i.item;
