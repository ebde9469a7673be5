DELETE FROM {schema}.fencepost_totals
WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {schema}.fencepost_totals WHERE generation = $1 OR generation = -$1::bigint LIMIT $2))
