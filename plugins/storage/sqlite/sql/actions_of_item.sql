SELECT action, at, item, kind, actor, reason, evidence_kind, evidence, from_state, to_state, detail
FROM fencepost_actions
WHERE item = ?4 AND action > ?1 AND (?3 IS NULL OR kind = ?3)
ORDER BY action LIMIT ?2
