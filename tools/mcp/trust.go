package mcp

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rogpeppe/go-internal/diff"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/foreign"
)

// TrustName is the name of the tool of [Host.Trust].
const TrustName = "trust_mcp_tool"

//go:embed trust_mcp_tool.md
var trustDescription string

// Trust returns the tool with which people acknowledge changed tools; ok is false if there are
// none. It covers the tools that have changed so far: get a new one after each call of
// Config.OnChange.
func (h *Host) Trust() (t tools.Tool, ok bool) {
	pending := h.Pending()
	names := make([]string, len(pending))
	for i, c := range pending {
		names[i] = c.Name
	}
	return trustTool{h, names}, len(names) > 0
}

type trustTool struct {
	host  *Host
	names []string
}

// Spec implements tools.Tool.
func (t trustTool) Spec() tools.Spec {
	return tools.Spec{
		Name: TrustName, Description: trustDescription, Level: risk.High,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"tool": {Type: "string", Enum: t.names, Description: "Changed tool."}},
			Required:   []string{"tool"},
		}),
	}
}

// Plan implements tools.Tool. People approve the definition that they were shown, by its hash.
func (t trustTool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Tool string `json:"tool"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	change, ok := t.pending(args.Tool)
	if !ok {
		return tools.Plan{}, tools.Failed("the tool %s is as it was acknowledged, or gone; nothing has to be trusted", args.Tool)
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: Target(change.Server), Args: c.Args,
		Bytes: []byte("trust the definition " + change.Is.Hash), Preview: change.preview(), Whole: true,
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: "acknowledging " + change.Name})
		_, err := t.host.Ack(ctx, change.Server, change.Tool, change.Is.Hash)
		if errors.Is(err, ErrNothing) {
			return tools.Result{}, tools.Failed("%s is no longer what was shown, so nothing was trusted; propose it again", change.Name)
		}
		if err != nil {
			return tools.Result{}, tools.Failed("it could not be stored that %s is trusted; check the bot's data directory: %w", change.Name, err)
		}
		text := "The tool " + change.Name + " is trusted as it is now."
		sink(tools.Event{Kind: tools.Completed, Text: "trusted"})
		return tools.Result{Value: text, Text: text}, nil
	}), nil
}

func (t trustTool) pending(name string) (Change, bool) {
	for _, c := range t.host.Pending() {
		if c.Name == name {
			return c, true
		}
	}
	return Change{}, false
}

// preview shows people what of a tool's definition is different now. Together with the hash of the
// new one, which the action holds, it determines what is trusted.
func (c Change) preview() string {
	shown := "What differs is invisible, or was cut. It says:\n" + string(c.Is.text())
	if _, hunks, found := bytes.Cut(diff.Diff("was", c.Was.text(), "is", c.Is.text()), []byte("\n@@")); found {
		shown = "@@" + string(hunks)
	}
	return fmt.Sprintf("Trust the tool %s of the MCP server %s as it is since %s.\n\n%s\nThe definition %.12s became %.12s.\n", foreign.Quote(c.Tool), c.Server,
		c.Since.UTC().Format("2006-01-02 15:04 UTC"), shown, c.Was.Hash, c.Is.Hash)
}

// text is what people read of a definition.
func (d Definition) text() []byte {
	return fmt.Appendf(nil, "%s\nIt claims, unchecked: %s\nArguments: %s\n", d.Description, d.Hints, indentJSON(d.Schema))
}

func indentJSON(schema json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, schema, "", "  ") != nil {
		return string(schema)
	}
	return b.String()
}
