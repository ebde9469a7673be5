SELECT c.tenant_key, c.feature, c.period_start, c.period_end, c.value::text
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS k (tenant_key, feature, period_start)
JOIN {schema}.fencepost_counters AS c USING (tenant_key, feature, period_start)
