SELECT set_config('fencepost.prune', 'on', true)
