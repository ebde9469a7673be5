-- For this transaction alone. What the outbox reads, it reads by key or in the
-- order of an index; a plan that was made while the tables were small, or while
-- nothing was pending or leased, must not become a scan when they are not. With
-- these off, three ways to a scan are left, and the statements close them:
-- a whole index in its order, for a merge that is off too: a join by
-- item = ANY (ARRAY[x.item]) has no order, only the index condition;
-- a whole partial index, when its predicate is stated: where rows are reached by
-- their key, state || '' and coalesce(superseded_by, 0) hide it;
-- the wrong partial index of two: ORDER BY names the right one.
-- With that there is one plan, whatever the parameters: it is made once a session.
-- A host that is cut off between a claim and its commit holds the counter of
-- claims: the server ends its session.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('idle_in_transaction_session_timeout', '15s', true)
