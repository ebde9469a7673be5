-- The sequence knows no transaction: what is added to it does.
UPDATE {schema}.fencepost_store AS k SET
  restores = k.restores + 1,
  claims_base = greatest(k.claims_base, $1::bigint + 1 - (
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.fencepost_claim_seq))
WHERE k.scope = 1
