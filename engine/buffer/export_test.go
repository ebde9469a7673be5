package buffer

// Names counts the names that are held, with or without a counter.
func (c *Counters) Names() (n int) {
	c.entries.Range(func(any, any) bool { n++; return true })
	return n
}
