UPDATE {schema}.fencepost_store AS k SET restores = k.restores + 1, claims = greatest(k.claims, $1::bigint + 1),
  restored_through = greatest(k.restored_through, $2::timestamptz)
WHERE k.scope = 1
