-- For this transaction alone: a removal reaches rows by their keys, whatever the
-- statistics say.
SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)
