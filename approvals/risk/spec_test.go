package risk

import "testing"

func TestTheEmbeddedTablesCanBeRead(t *testing.T) {
	specs, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) < 250 {
		t.Errorf("only %d programs", len(specs))
	}
	if _, err := dangers(); err != nil {
		t.Fatal(err)
	}
	var walk func(s *spec)
	walk = func(s *spec) {
		if s.check != "" && checks(s.check) == nil {
			t.Errorf("%s: no rule %s", s.name, s.check)
		}
		for _, sub := range s.subs {
			walk(sub)
		}
	}
	for _, s := range specs {
		walk(s)
	}
}
