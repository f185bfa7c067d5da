package helper

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func asJob(parts ...string) string {
	text := strings.Join(parts, "\x00") + "\x00"
	return fmt.Sprintf("%d\n%s", len(text), text)
}

func TestAJobIsReadWholeOrNotAtAll(t *testing.T) {
	good := asJob("/dir", "1:2", "7", "3", "1", "2", "A=b", "C=", "1", "net", "echo", "", "x\n")
	j, err := readJob(strings.NewReader(good + "more"))
	if err != nil || j.dir != "/dir" || j.id != "1:2" || j.limit != 7*time.Second || j.grace != 3*time.Second || !j.merged ||
		!slices.Equal(j.env, []string{"A=b", "C="}) || j.needs != "net" || !slices.Equal(j.argv, []string{"echo", "", "x\n"}) {
		t.Errorf("%+v %v", j, err)
	}
	if j, err := readJob(strings.NewReader(asJob("/", "", "0", "1", "0", "0", "0", "true"))); err != nil || j.needs != "" || !slices.Equal(j.argv, []string{"true"}) {
		t.Errorf("%+v %v", j, err)
	}
	if _, err := readJob(strings.NewReader("")); !errors.Is(err, errNoJob) {
		t.Errorf("no job: %v", err)
	}
	for n := 1; n < len(good); n++ { // a connection that ends in the middle
		if j, err := readJob(strings.NewReader(good[:n])); err == nil || errors.Is(err, errNoJob) {
			t.Errorf("%d bytes of it: %+v %v", n, j, err)
		}
	}
	for _, bad := range []string{
		"-1\n", "0\n", "99999999\n", "x\n", "3\nabc",
		asJob("/", "", "0", "1", "0", "0", "0"),                // no program
		asJob("/", "", "0", "1", "0", "0", "0", ""),            // an empty one
		asJob("/", "", "-1", "1", "0", "0", "0", "true"),       // a negative number
		asJob("/", "", "0", "1", "0", "9", "0", "true"),        // too few variables
		asJob("/", "", "0", "1", "0", "0", "2", "net", "true"), // too many arguments
		asJob("/", "", "0", "1", "0", "0", "1"),
	} {
		if j, err := readJob(strings.NewReader(bad)); err == nil || errors.Is(err, errNoJob) {
			t.Errorf("%q: %+v %v", bad, j, err)
		}
	}
}

func FuzzJob(f *testing.F) {
	f.Add(asJob("/dir", "1:2", "7", "3", "1", "1", "A=b", "1", "net", "echo", "x"))
	f.Add("12\nabc")
	f.Fuzz(func(t *testing.T, text string) {
		j, err := readJob(strings.NewReader(text))
		if err == nil && (len(j.argv) == 0 || j.argv[0] == "" || j.limit < 0 || j.grace < 0) {
			t.Errorf("%+v", j)
		}
	})
}
