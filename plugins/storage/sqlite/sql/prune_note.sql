INSERT INTO fencepost_pruned AS p (tenant_key, feature, period_start, earliest, latest)
VALUES (?1, ?2, ?3, ?4, ?4)
ON CONFLICT (tenant_key, feature, period_start) DO UPDATE
SET earliest = min(p.earliest, excluded.earliest), latest = max(p.latest, excluded.latest)
