SELECT set_config('jit', $1, true), set_config('enable_nestloop', $2, true), set_config('enable_seqscan', $3, true),
  set_config('plan_cache_mode', $4, true)
