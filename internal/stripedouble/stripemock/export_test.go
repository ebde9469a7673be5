package stripemock

// KillProcess ends stripe-mock behind the server in front of it.
func (m *Mock) KillProcess() {
	_ = m.process.cmd.Process.Kill()
	<-m.process.ended
}

// PutInFront puts an address between the two. It returns the one before.
func (m *Mock) PutInFront(addr string) string {
	before := m.process.addr
	m.process.addr = addr
	return before
}
