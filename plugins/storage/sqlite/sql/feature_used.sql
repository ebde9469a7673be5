SELECT max(signed), min(signed) FROM fencepost_totals WHERE feature = ?1 HAVING count(*) > 0
