SELECT set_config('statement_timeout', $1::bigint::text, true), set_config('jit', $2, true),
  set_config('enable_nestloop', $3, true), set_config('enable_seqscan', $4, true), set_config('plan_cache_mode', $5, true)
