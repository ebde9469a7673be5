SELECT line, customer, feature, meter, from_at, to_at, recorded::text, reported::text, provider::text, difference::text, cause, confirmed
FROM {schema}.fencepost_reconciliation_lines
WHERE id = $1::text AND line > $2::bigint
ORDER BY line LIMIT $3::integer
