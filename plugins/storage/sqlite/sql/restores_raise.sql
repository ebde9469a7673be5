UPDATE fencepost_meta SET value = CASE key WHEN 'restores' THEN value + 1 WHEN 'restored_through' THEN max(value, ?2)
  ELSE max(value, ?1) + 1 END
WHERE key = 'restores' OR key = 'claims' OR key = 'restored_through'
