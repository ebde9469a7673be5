SELECT a.action, a.at, a.item, a.kind, a.actor, a.reason, a.evidence_kind, a.evidence,
       a.from_state, a.to_state, a.detail
FROM {schema}.fencepost_actions AS a
WHERE a.action > $1::bigint
  AND ($3::bigint IS NULL OR a.item = $3)
  AND ($4::text IS NULL OR a.kind = $4)
ORDER BY a.action LIMIT $2::integer
