package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// collected are the operations of OCSF events of requests, in order.
func collected(lines []string) (out []string) {
	for _, l := range lines {
		var e struct {
			Class    int                               `json:"class_uid"`
			Activity int                               `json:"activity_id"`
			Metadata struct{ UID, Correlation string } `json:"metadata"`
			API      struct{ Operation string }        `json:"api"`
			Process  struct {
				Command string `json:"cmd_line"`
			} `json:"process"`
		}
		switch err := json.Unmarshal([]byte(l), &e); {
		case err != nil:
			out = append(out, err.Error())
		case e.Class == 1007 && e.Activity == 1:
			out = append(out, "launch "+e.Process.Command)
		case e.Class == 1007:
			out = append(out, "terminate "+e.Process.Command)
		case strings.HasPrefix(e.API.Operation, "request."):
			out = append(out, e.API.Operation)
		}
	}
	return out
}

// A collector that is away while things happen learns all of them, also from the next process of the bot; a
// file has them, too.
func TestEveryDecisionAndRunIsStreamed(t *testing.T) {
	t.Parallel()
	srv := newEventReceiver(t)
	srv.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	dir := t.TempDir()
	file := filepath.Join(dir, "events.jsonl")
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("touch " + dir + "/made")}}}}).enter(t, plainConfig+`
stream:
  - {to: otlp, url: "`+srv.URL+`/v1/logs"}
  - {to: file, path: `+file+`}
`)
	c.tell("do")
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	want := []string{"request.asked", "request.approved", "launch touch " + dir + "/made", "terminate touch " + dir + "/made"}
	has := func(all []string) bool {
		seen := slices.DeleteFunc(collected(all), func(s string) bool { return s == "request.receipt" })
		return slices.Equal(seen, want)
	}
	lines := func() []string {
		f, err := os.Open(file)
		if err != nil {
			return nil
		}
		defer func() { _ = f.Close() }()
		var all []string
		for sc := bufio.NewScanner(f); sc.Scan(); {
			all = append(all, sc.Text())
		}
		return all
	}
	eventually(t, "the file has it", func() bool { return has(lines()) }, func() string { return strings.Join(lines(), "\n") })
	eventually(t, "one line of the log says that the collector is away", func() bool { return strings.Count(c.b.log.String(), "a receiver takes no messages") == 1 }, c.b.log.String)
	c.b.kill()
	srv.set(nil)
	c.again()
	eventually(t, "the collector has it", func() bool { return has(srv.events()) }, func() string { return strings.Join(srv.operations(), "\n") + "\n" + c.b.log.String() })
}
