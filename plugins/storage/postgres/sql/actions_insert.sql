INSERT INTO {schema}.fencepost_actions
  (at, item, kind, actor, reason, evidence_kind, evidence, from_state, to_state, detail)
SELECT clock_timestamp(), nullif(a.item, 0), a.kind, a.actor, a.reason, a.evidence_kind, a.evidence,
       a.from_state, a.to_state, nullif(a.detail, '')
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
  WITH ORDINALITY AS a (item, kind, actor, reason, evidence_kind, evidence, from_state, to_state, detail, n)
ORDER BY a.n
