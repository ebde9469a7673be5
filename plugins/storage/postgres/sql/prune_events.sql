SELECT e.seq, e.tenant_key, e.event_id, e.feature, e.quantity::text, e.effect::text, e.kind, e.reverses,
       e.original_event_id, e.occurred_at, e.period_start, e.period_end, e.period_source, e.plan,
       e.plan_version, e.dimensions, e.metadata, e.payload_hash, e.dedupe_hash, e.recorded_at,
       coalesce(f.signed, false) OR EXISTS (
         SELECT FROM {schema}.fencepost_totals AS t
         WHERE t.tenant_key = e.tenant_key AND t.feature = e.feature AND t.period_start = e.period_start
           AND t.generation = (SELECT active FROM {schema}.fencepost_generations WHERE scope = 1) AND t.signed),
       f.buckets, CASE WHEN f.buckets IS NULL THEN -1 ELSE f.revision END
FROM unnest($1::bigint[]) AS p (seq)
JOIN {schema}.fencepost_events AS e ON e.seq = ANY (ARRAY[p.seq])
LEFT JOIN {schema}.fencepost_features AS f ON f.feature = e.feature
ORDER BY e.seq
