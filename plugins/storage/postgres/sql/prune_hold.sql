-- Items of the events stay as they are until they are gone: whoever moves one now
-- is waited for, and what it made of it is looked at after this.
SELECT count(*) FROM (
  SELECT s.item FROM unnest($1::bigint[]) AS p (seq)
  JOIN {schema}.fencepost_outbox_items AS i ON i.event_seq = ANY (ARRAY[p.seq])
  JOIN {schema}.fencepost_outbox_state AS s ON s.item = ANY (ARRAY[i.item])
  ORDER BY s.item
  FOR UPDATE OF s) AS held
