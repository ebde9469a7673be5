UPDATE fencepost_meta SET value = CASE key WHEN 'restores' THEN value + 1 ELSE max(value, ?1) + 1 END
WHERE key = 'restores' OR key = 'claims'
