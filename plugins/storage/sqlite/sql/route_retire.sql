UPDATE fencepost_routes SET retired_at = ?2 WHERE route = ?1 AND retired_at IS NULL
