package history

import "testing"

// T4, B-72: the colours of a captured screen reach the model, and nothing else that a
// terminal would obey does.
func TestTheColoursOfACapturedScreenReachTheModel(t *testing.T) {
	for in, want := range map[string]string{
		`{"result":"\u001b[31mred\u001b[0m"}`:                        `{"result":"\u001b[31mred\u001b[0m"}`,
		`{"result":"\u001b[1;38:5:9mred\u001b[2Jx\u001b]0;t\u0007"}`: `{"result":"\u001b[1;38:5:9mredx"}`,
	} {
		if got := cleanScreen(in); got != want {
			t.Errorf("%s becomes %s", in, got)
		}
		if got := cleanJSON(in); got == want {
			t.Errorf("%s keeps its colours elsewhere", in)
		}
	}
}
