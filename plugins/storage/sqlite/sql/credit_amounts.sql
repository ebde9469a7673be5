SELECT amount FROM fencepost_credits
WHERE tenant_key = ?1 AND meter = ?2 AND seq >= coalesce((
  SELECT max(seq) FROM fencepost_credits WHERE tenant_key = ?1 AND meter = ?2 AND kind = 'reset'), 0)
