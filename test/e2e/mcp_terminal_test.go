package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestAnAgentUsesTheTerminalOfItsConversation has an agent's approved command run in a terminal that
// people can watch, and lets the agent look at it and type there, which asks.
func TestAnAgentUsesTheTerminalOfItsConversation(t *testing.T) {
	t.Parallel()
	b := newBot(t, strings.Replace(plainConfig, "tmux: false, ", "", 1), newLedger(t, nil).url)
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "settings"))
	if !b.start() {
		t.Fatal(b.log)
	}
	t.Cleanup(b.endTerminals)
	if _, errs, code := b.run("", "login", b.link(t, "alice")); code != 0 {
		t.Fatal(errs)
	}
	agent := exec.CommandContext(t.Context(), binary, "mcp")
	agent.Env, agent.Dir = b.env, b.dir
	s, err := mcp.NewClient(&mcp.Implementation{Name: "coder", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: agent}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	bob := b.login("bob")
	last := ""
	call := func(asks bool, name string, args map[string]any) string {
		t.Helper()
		done := make(chan string, 1)
		go func() {
			res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
			raw, _ := json.Marshal(res)
			if err != nil {
				raw = []byte(err.Error())
			}
			done <- string(raw)
		}()
		if asks {
			eventually(t, "a card for "+name, func() bool {
				var home struct {
					Yours []struct {
						Thread string
						Card   struct {
							Risk   string
							Choose []struct{ ID string }
						}
					}
				}
				if _, err := bob.do("GET", "/api/home", nil, &home); err != nil || len(home.Yours) != 1 || home.Yours[0].Card.Choose[0].ID == last {
					return false
				}
				last = home.Yours[0].Card.Choose[0].ID
				if said := home.Yours[0].Card.Risk; args["risk"] != nil && !strings.Contains(strings.ToLower(said), "high") {
					t.Errorf("the agent's claim doesn't raise the risk: %q", said)
				}
				bob.click(t, home.Yours[0].Thread, last)
				return true
			}, b.log.String)
		}
		return <-done
	}
	if said := call(true, "run_shell", map[string]any{"target": "local", "command": "echo in-the-pane | tee " + filepath.Join(b.dir, "ran")}); !strings.Contains(said, `exit_code\":0`) && !strings.Contains(said, `"exit_code":0`) {
		t.Fatalf("the command: %s", said)
	}
	if said := call(false, "capture-pane", map[string]any{}); !strings.Contains(said, "in-the-pane") {
		t.Errorf("the terminal: %s", said)
	}
	if said := call(true, "send-keys", map[string]any{"literal_text": "touch typed-by-the-agent", "enter": true, "risk": "high", "mutation": true, "privesc": false, "why": "to try it"}); strings.Contains(said, `"isError":true`) {
		t.Errorf("typing: %s", said)
	}
	eventually(t, "what it typed", func() bool {
		return strings.Contains(call(false, "capture-pane", map[string]any{}), "typed-by-the-agent")
	}, b.log.String)
}
