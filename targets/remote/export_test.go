package remote

// HasSpare reports whether a launcher waits for the next read.
func (m *Machine) HasSpare() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spare != nil
}
