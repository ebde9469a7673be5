SELECT customer, feature FROM fencepost_outbox_items
WHERE (customer, feature) > (?1, ?2)
ORDER BY customer, feature LIMIT 1
