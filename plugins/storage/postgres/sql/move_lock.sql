-- What a change of these items may reach, in the order of items: themselves, and
-- the items that depend on them. What follows in the transaction sees the rows
-- as they are then.
SELECT count(*) FROM (
  SELECT o.item
  FROM (
    SELECT m.item FROM unnest($1::bigint[]) AS m (item)
    UNION
    SELECT d.item FROM unnest($2::bigint[]) AS m (item)
    CROSS JOIN LATERAL (
      SELECT i.item FROM {schema}.fencepost_outbox_items AS i WHERE i.depends_on = m.item
      ORDER BY i.depends_on, i.item OFFSET 0) AS d) AS p
  JOIN {schema}.fencepost_outbox_state AS o ON o.item = ANY (ARRAY[p.item])
  ORDER BY p.item
  FOR NO KEY UPDATE OF o) AS held
