SELECT current_setting('jit'), current_setting('enable_nestloop'), current_setting('enable_seqscan'),
  current_setting('plan_cache_mode')
