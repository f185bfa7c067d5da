package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/store"
	"countersign/tools/foreign"
)

// ErrNothing is wrapped by [Host.Ack] when there is no change to acknowledge.
var ErrNothing = errors.New("mcp: nothing to acknowledge")

// Definition is a server's own description of a tool.
type Definition struct {
	// Hash is the hex SHA-256 of everything that the server sent, before it was cleaned or cut.
	Hash string `json:"hash"`
	// Description has no invisible characters and is cut.
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Hints       Hints           `json:"hints,omitzero"`
}

// Hints are a server's annotations of a tool; they are unverified.
type Hints struct {
	ReadOnly    bool  `json:"read_only,omitempty"`
	Destructive *bool `json:"destructive,omitempty"` // nil means unspecified
	Idempotent  bool  `json:"idempotent,omitempty"`
	OpenWorld   *bool `json:"open_world,omitempty"`
}

// Change is a tool whose definition differs from the acknowledged one.
type Change struct {
	Server string
	Tool   string // the server's name for it
	Name   string // the model's name for it
	Since  time.Time
	Was    Definition
	Is     Definition
}

// Sentence says what happened and what to do, for people and for the model.
func (c Change) Sentence() string { return changed(c.Server, c.Tool, c.Name) }

func changed(server, tool, name string) string {
	return fmt.Sprintf("the tool %s of the MCP server %s changed since it was acknowledged, so it is switched off; propose %s with the "+
		"tool %s, so that people see what it says now", foreign.Quote(tool), server, TrustName, name)
}

// pin is the definition of a tool when it was first seen or last acknowledged. Its row is
// ("mcp-pin", server, tool).
type pin struct {
	Tool string     `json:"tool"`
	Name string     `json:"name"`
	Def  Definition `json:"def"`
	At   time.Time  `json:"at"`
	// Change is the server's present definition, if it differs.
	Change *Definition `json:"change,omitempty"`
	Since  time.Time   `json:"since,omitzero"`
}

const pinRows = "mcp-pin"

func pinKey(server, tool string) []byte { return store.Key(pinRows, server, tool) }

func (p pin) change(server string) Change {
	return Change{Server: server, Tool: p.Tool, Name: p.Name, Since: p.Since, Was: p.Def, Is: *p.Change}
}

// definition converts a server's tool. It returns an error if it cannot be stored.
func definition(t *sdk.Tool) (Definition, error) {
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return Definition{}, fmt.Errorf("its schema does not encode: %w", err)
	}
	all, err := json.Marshal([]any{"mcp-tool-v1", t.Name, t.Title, t.Description, json.RawMessage(schema), t.Annotations})
	if err != nil {
		return Definition{}, fmt.Errorf("what the server says of it does not encode: %w", err)
	}
	sum := sha256.Sum256(all)
	d := Definition{Hash: hex.EncodeToString(sum[:]), Description: foreign.Text(t.Description, 2*foreign.MaxDescription), Schema: schema}
	if len(schema) > foreign.MaxSchema {
		// The tool is refused for its size anyway; the row stores only the size.
		d.Schema = json.RawMessage(fmt.Sprintf(`"a schema of %d bytes"`, len(schema)))
	}
	if a := t.Annotations; a != nil {
		d.Hints = Hints{ReadOnly: a.ReadOnlyHint, Destructive: a.DestructiveHint, Idempotent: a.IdempotentHint, OpenWorld: a.OpenWorldHint}
	}
	return d, nil
}

// pins reads the rows of one server, by the server's tool names.
func pins(tx store.Tx, server string) map[string]pin {
	out := map[string]pin{}
	start, end := store.Prefix(pinRows, server)
	for k, v := range tx.Scan(start, end) {
		var p pin
		store.Decode(k, v, &p)
		out[p.Tool] = p
	}
	return out
}

// listedTool is one tool in a server's list.
type listedTool struct {
	tool string
	def  Definition
}

// maxPins is how many tools of one server are stored, so that a server with ever new tools does not
// fill the store.
const maxPins = 2 * maxTools

// updatePins compares a server's list with its pins: new tools are pinned, changed ones are marked,
// and the mark is removed from tools that match again. It returns the rows, and why tools were not
// pinned.
func updatePins(tx store.Tx, server string, list []listedTool, now time.Time) (rows map[string]pin, refused map[string]string) {
	rows, refused = pins(tx, server), map[string]string{}
	taken := map[string]bool{}
	for _, p := range rows {
		taken[foreign.FoldName(p.Name)] = true
	}
	for _, s := range list {
		p, known := rows[s.tool]
		switch {
		case !known && len(rows) >= maxPins:
			refused[s.tool] = fmt.Sprintf("the server has had %d other tools", maxPins)
			continue
		case !known:
			name, ok := nameOf(server, s.tool, func(n string) bool { return taken[foreign.FoldName(n)] })
			if !ok {
				refused[s.tool] = "another one has its name"
				continue
			}
			taken[foreign.FoldName(name)] = true
			p = pin{Tool: s.tool, Name: name, Def: s.def, At: now}
		case p.Def.Hash == s.def.Hash && p.Change == nil, p.Change != nil && p.Change.Hash == s.def.Hash:
			continue
		case p.Def.Hash == s.def.Hash:
			p.Change, p.Since = nil, time.Time{}
		default:
			if p.Change == nil {
				p.Since = now
			}
			def := s.def
			p.Change = &def
		}
		rows[s.tool] = p
		store.Save(tx, pinKey(server, s.tool), p)
	}
	return rows, refused
}

// acknowledge pins the changed definition of a server's tool if it still has the hash that a person
// was shown. Otherwise the error wraps [ErrNothing].
func acknowledge(ctx context.Context, db store.DB, server, tool, hash string) (Change, error) {
	var c Change
	err := db.Update(ctx, func(tx store.Tx) error {
		p, ok := pins(tx, server)[tool]
		switch {
		case !ok:
			return fmt.Errorf("%w: no tool %s of a server %s was ever seen; check both names", ErrNothing, foreign.Quote(tool), foreign.Quote(server))
		case p.Change == nil:
			return fmt.Errorf("%w: the tool %s of %s is as it was acknowledged", ErrNothing, foreign.Quote(p.Tool), server)
		case p.Change.Hash != hash:
			return fmt.Errorf("%w: the tool %s of %s changed once more since it was shown", ErrNothing, foreign.Quote(p.Tool), server)
		}
		c = p.change(server)
		p.Def, p.At, p.Change, p.Since = *p.Change, p.Since, nil, time.Time{}
		store.Save(tx, pinKey(server, p.Tool), p)
		return nil
	})
	return c, err
}
