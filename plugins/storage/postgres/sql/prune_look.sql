-- What decides about events, in their order. $2 is the age; what a build has not
-- scanned, seq in ($3, $4], must stay. A row is by itself free to go unless:
-- it is young; somebody still acts on an item of it; it is not scanned; and of an
-- original: one of its corrections is not free to go, because without it more
-- could be taken back than there was; and of a correction: its original is here.
WITH t AS MATERIALIZED (SELECT clock_timestamp() - $2::interval AS before)
SELECT e.seq, e.event_id, e.tenant_key, coalesce(e.original_event_id, ''),
       e.recorded_at >= (SELECT before FROM t) AS young,
       e.seq > $3::bigint AND e.seq <= $4::bigint OR EXISTS (
         SELECT FROM {schema}.fencepost_outbox_items AS i
         JOIN {schema}.fencepost_outbox_state AS s ON s.item = i.item
         WHERE i.event_seq = e.seq AND s.settled_at IS NULL AND s.superseded_by IS NULL)
       OR e.kind = 'usage' AND EXISTS (
         SELECT FROM {schema}.fencepost_events AS c
         WHERE c.tenant_key = e.tenant_key AND c.original_event_id = e.event_id
           AND (c.recorded_at >= (SELECT before FROM t) OR c.seq > $3::bigint AND c.seq <= $4::bigint OR EXISTS (
             SELECT FROM {schema}.fencepost_outbox_items AS i
             JOIN {schema}.fencepost_outbox_state AS s ON s.item = i.item
             WHERE i.event_seq = c.seq AND s.settled_at IS NULL AND s.superseded_by IS NULL))) AS stays,
       e.kind = 'correction' AND EXISTS (
         SELECT FROM {schema}.fencepost_events AS o
         WHERE o.tenant_key = e.tenant_key AND o.event_id = e.original_event_id) AS bound
FROM unnest($1::bigint[]) AS p (seq)
JOIN {schema}.fencepost_events AS e ON e.seq = ANY (ARRAY[p.seq])
ORDER BY e.seq
