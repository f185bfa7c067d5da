package needstest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatIsCutShortIsWrittenDown(t *testing.T) {
	list := filepath.Join(t.TempDir(), "cut")
	t.Setenv(All, "")
	t.Setenv(Cut, list)
	t.Run("a case", func(t *testing.T) {
		if Whole(t) {
			t.Error("whole, but nobody asked")
		}
	})
	t.Run("a long one", func(t *testing.T) { Long(t) })
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	line := here + " TestWhatIsCutShortIsWrittenDown/"
	want := line + "a_case\n" + line + "a_long_one\n"
	if b, err := os.ReadFile(list); err != nil || string(b) != want {
		t.Errorf("%q, %v", b, err)
	}
	t.Setenv(All, "all")
	if !testing.Short() && !Whole(t) {
		t.Error("not whole, but asked for")
	}
	if b, _ := os.ReadFile(list); string(b) != want {
		t.Errorf("%q", b)
	}
}
