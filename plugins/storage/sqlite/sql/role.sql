SELECT owner, until, fence FROM fencepost_roles WHERE role = ?1
