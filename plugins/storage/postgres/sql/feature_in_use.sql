SELECT coalesce((SELECT signed FROM {schema}.fencepost_features WHERE feature = $1), false) <> $2
  AND EXISTS (SELECT FROM {schema}.fencepost_totals WHERE feature = $1 AND generation >= 0 AND events > 0)
