INSERT INTO fencepost_actions (
  at, item, kind, actor, reason, evidence_kind, evidence, from_state, to_state, detail)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
