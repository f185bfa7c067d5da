package pgtest

import (
	"os"
	"testing"
)

func TestAServerLivesAsLongAsItsTest(t *testing.T) {
	var dir string
	t.Run("with", func(t *testing.T) {
		s := New(t, "max_connections = 33")
		dir = s.dir
		if n := s.Int(t, `SELECT current_setting('max_connections')::int`); n != 33 {
			t.Errorf("%d connections", n)
		}
		s.Exec(t, `CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)`)
		s.Stop()
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if n := s.Int(t, `SELECT n FROM kept`); n != 7 {
			t.Errorf("%d after a crash", n)
		}
	})
	if dir == "" {
		t.Skip("there was no server")
	}
	if entries, err := os.ReadDir(dir); err == nil {
		t.Errorf("left: %v", entries)
	}
}
