-- What a change of these items may reach, in the order of items: themselves, and
-- the items that depend on them. What follows in the transaction sees the rows
-- as they are then.
SELECT count(*) FROM (
  SELECT o.item
  FROM (
    SELECT m.item FROM unnest($1::bigint[]) AS m (item)
    UNION
    SELECT d.item FROM unnest($2::bigint[]) AS m (item)
    JOIN {schema}.fencepost_outbox_items AS d ON d.depends_on = ANY (ARRAY[m.item])) AS p
  JOIN {schema}.fencepost_outbox_state AS o ON o.item = ANY (ARRAY[p.item])
  ORDER BY o.item
  FOR NO KEY UPDATE OF o) AS held
