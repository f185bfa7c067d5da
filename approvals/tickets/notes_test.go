package tickets

import "testing"

func TestWorkNotesAreNoHTML(t *testing.T) {
	const evil = "ran [code]<img src=x>[/code] [ CODE ]<b>"
	if got := plainNotes(evil); got != "ran (code)<img src=x>(/code) ( CODE )<b>" {
		t.Errorf("%q", got)
	}
}
