package postgres

// args are the columns after the order.
func (a *itemArrays) args() []any {
	return []any{
		a.tenant, a.kind, a.ref, a.exporter, a.account, a.mode, a.mapping,
		a.digest, a.subject, a.route, a.serial, a.customer, a.payload, a.quarantine, a.settled, a.budget,
	}
}
