-- Whether one of these is leased and settled.
SELECT EXISTS (
  SELECT FROM unnest($1::bigint[]) AS m (item)
  JOIN {schema}.fencepost_outbox_state AS o ON o.item = ANY (ARRAY[m.item])
  WHERE o.state || '' = 'leased' AND o.settled_at IS NOT NULL)
