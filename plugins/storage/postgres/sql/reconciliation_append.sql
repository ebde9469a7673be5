-- Numbered on from the last line; the row of the run is locked.
INSERT INTO {schema}.fencepost_reconciliation_lines
  (id, line, customer, feature, meter, from_at, to_at, recorded, reported, provider, difference, cause, confirmed)
SELECT $1::text, l.n + (SELECT coalesce(max(k.line), 0) FROM {schema}.fencepost_reconciliation_lines AS k WHERE k.id = $1::text),
  l.customer, l.feature, l.meter, l.from_at, l.to_at, l.recorded::numeric, l.reported::numeric,
  l.provider::numeric, l.difference::numeric, l.cause, l.confirmed
FROM unnest($2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::text[], $8::text[], $9::text[],
  $10::text[], $11::text[], $12::bigint[])
  WITH ORDINALITY AS l (customer, feature, meter, from_at, to_at, recorded, reported, provider, difference, cause, confirmed, n)
ORDER BY l.n
