SELECT set_config('fencepost.rename', $1::text, true)
