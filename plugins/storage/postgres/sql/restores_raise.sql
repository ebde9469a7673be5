UPDATE {schema}.fencepost_store AS k SET restores = k.restores + 1, claims = greatest(k.claims, $1::bigint + 1)
WHERE k.scope = 1
