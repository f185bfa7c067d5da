//go:build cgo

package parser

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	sitter "github.com/smacker/go-tree-sitter"
	"github.com/smacker/go-tree-sitter/bash"
	"github.com/smacker/go-tree-sitter/golang"
	"github.com/smacker/go-tree-sitter/java"
	"github.com/smacker/go-tree-sitter/javascript"
	"github.com/smacker/go-tree-sitter/python"
	"github.com/smacker/go-tree-sitter/rust"
	"github.com/smacker/go-tree-sitter/typescript/tsx"
	"github.com/smacker/go-tree-sitter/typescript/typescript"

	"countersign/tools/code/wire"
)

// grammars says whether this build can parse.
const grammars = true

// parseTime bounds the parse of one file, in the worker. The parent waits longer, and
// ends a worker that hangs elsewhere.
const parseTime = 2 * time.Second

// grammar is how a language is parsed and what is looked for. In the query, the name of a
// capture is the kind of the symbol that the node declares; @name is its name; an import is
// a symbol too.
type grammar struct {
	load     func() *sitter.Language
	query    string
	branches string // nodes that are one more way through a function
}

const jsQuery = `
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (generator_function)]) @function
(method_definition name: (_) @name) @method
(import_statement source: (string) @name) @import
(export_statement source: (string) @name) @import
(call_expression function: (identifier) @_f arguments: (arguments . (string) @name)) @require
`

const jsBranches = `[(if_statement) (for_statement) (for_in_statement) (while_statement) (do_statement) (switch_case) (catch_clause) (ternary_expression)] @b`

const tsQuery = jsQuery + `
(class_declaration name: (type_identifier) @name) @class
(abstract_class_declaration name: (type_identifier) @name) @class
(interface_declaration name: (type_identifier) @name) @interface
(type_alias_declaration name: (type_identifier) @name) @type
(enum_declaration name: (identifier) @name) @enum
(internal_module name: (_) @name) @module
(function_signature name: (identifier) @name) @function
(method_signature name: (_) @name) @method
(abstract_method_signature name: (_) @name) @method
`

// grammarOf returns the grammar of a language, by Linguist's name.
func grammarOf(lang string) (grammar, bool) {
	switch lang {
	case "Go":
		return grammar{golang.GetLanguage, `
(function_declaration name: (identifier) @name) @function
(method_declaration name: (field_identifier) @name) @method
(type_spec name: (type_identifier) @name type: (struct_type)) @struct
(type_spec name: (type_identifier) @name type: (interface_type)) @interface
(type_spec name: (type_identifier) @name type: [(type_identifier) (qualified_type) (pointer_type) (array_type) (slice_type) (map_type) (channel_type) (function_type) (generic_type)]) @type
(type_alias name: (type_identifier) @name) @type
(source_file (const_declaration (const_spec (identifier) @name) @constant))
(source_file (var_declaration (var_spec (identifier) @name) @variable))
(import_spec path: (_) @name) @import
`, `[(if_statement) (for_statement) (expression_case) (type_case) (communication_case)] @b`}, true
	case "Python":
		return grammar{python.GetLanguage, `
(function_definition name: (identifier) @name) @function
(class_definition name: (identifier) @name) @class
(import_statement name: [(dotted_name) (aliased_import)] @name) @import
(import_from_statement module_name: (_) @name) @import
`, `[(if_statement) (elif_clause) (for_statement) (while_statement) (except_clause) (case_clause) (conditional_expression)] @b`}, true
	case "JavaScript", "JSX":
		return grammar{javascript.GetLanguage, jsQuery + `(class_declaration name: (identifier) @name) @class`, jsBranches}, true
	case "TypeScript":
		return grammar{typescript.GetLanguage, tsQuery, jsBranches}, true
	case "TSX":
		return grammar{tsx.GetLanguage, tsQuery, jsBranches}, true
	case "Rust":
		return grammar{rust.GetLanguage, `
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(struct_item name: (type_identifier) @name) @struct
(union_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(trait_item name: (type_identifier) @name) @trait
(impl_item type: (_) @name) @impl
(type_item name: (type_identifier) @name) @type
(mod_item name: (identifier) @name) @module
(macro_definition name: (identifier) @name) @macro
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @constant
(use_declaration argument: (_) @name) @import
`, `[(if_expression) (for_expression) (while_expression) (loop_expression) (match_arm)] @b`}, true
	case "Java":
		return grammar{java.GetLanguage, `
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(annotation_type_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
(import_declaration [(scoped_identifier) (identifier)] @name) @import
`, `[(if_statement) (for_statement) (enhanced_for_statement) (while_statement) (do_statement) (switch_label) (catch_clause) (ternary_expression)] @b`}, true
	case "Shell":
		return grammar{bash.GetLanguage, `
(function_definition name: (word) @name) @function
(command name: (command_name) @_f . argument: (_) @name) @source
`, `[(if_statement) (elif_clause) (for_statement) (c_style_for_statement) (while_statement) (case_item)] @b`}, true
	}
	return grammar{}, false
}

// parsers are the parsers and queries of one worker, made as they are needed. They have
// one owner.
type parsers map[string]*loaded

type loaded struct {
	grammar  grammar
	parser   *sitter.Parser
	query    *sitter.Query
	branches *sitter.Query
}

func (ps parsers) get(lang string) (*loaded, error) {
	if l := ps[lang]; l != nil {
		return l, nil
	}
	g, ok := grammarOf(lang)
	if !ok {
		return nil, errors.New("there is no grammar for this language")
	}
	l := &loaded{grammar: g, parser: sitter.NewParser()}
	language := g.load()
	l.parser.SetLanguage(language)
	l.parser.SetOperationLimit(int(parseTime.Microseconds()))
	var err error
	if l.query, err = sitter.NewQuery([]byte(g.query), language); err != nil {
		return nil, fmt.Errorf("the query of %s: %w", lang, err)
	}
	if l.branches, err = sitter.NewQuery([]byte(g.branches), language); err != nil {
		return nil, fmt.Errorf("the query of branches of %s: %w", lang, err)
	}
	ps[lang] = l
	return l, nil
}

// parse parses one text.
func (ps parsers) parse(ctx context.Context, q wire.Request, text []byte) wire.Parsed {
	l, err := ps.get(q.Language)
	if err != nil {
		return wire.Parsed{Refused: err.Error()}
	}
	if len(text) > math.MaxInt32 {
		return wire.Parsed{Refused: "it is too large"}
	}
	// The binding starts a goroutine for a context that can end, which costs more than most
	// files; the limit of time ends a parse, and the parent ends the process.
	tree, err := l.parser.ParseCtx(context.WithoutCancel(ctx), nil, text)
	if err != nil {
		l.parser.Reset() // or it goes on with this text the next time
		return wire.Parsed{Refused: "parsing took longer than " + parseTime.String()}
	}
	defer tree.Close()
	root := tree.RootNode()
	out := wire.Parsed{HasErrors: root.HasError()}
	spans := l.symbols(root, text, &out)
	if q.Full {
		l.complexity(root, spans, &out)
		if out.HasErrors {
			mistakes(root, text, &out)
		}
	}
	nest(q.Language, spans, out.Symbols)
	return out
}

// span is where a symbol's node is, in bytes.
type span struct {
	from, to uint32
	receiver string
}

// symbols runs the query. Its results are in the order of the text, the outer first.
func (l *loaded) symbols(root *sitter.Node, text []byte, out *wire.Parsed) []span {
	type found struct {
		span
		wire.Symbol
	}
	var list []found
	cursor := sitter.NewQueryCursor()
	defer cursor.Close()
	cursor.Exec(l.query, root)
	for {
		m, ok := cursor.NextMatch()
		if !ok {
			break
		}
		var f found
		var node *sitter.Node
		helper := ""
		for _, c := range m.Captures {
			switch name := l.query.CaptureNameForId(c.Index); name {
			case "name":
				f.Name = wire.Line(c.Node.Content(text), wire.MaxName)
			case "_f":
				helper = c.Node.Content(text)
			default:
				f.Kind, node = name, c.Node
			}
		}
		switch f.Kind {
		case "require":
			if helper != "require" && helper != "import" {
				continue
			}
			f.Kind = "import"
		case "source":
			if helper != "source" && helper != "." {
				continue
			}
			f.Kind = "import"
		}
		if node == nil || f.Name == "" {
			continue
		}
		if len(list) >= wire.MaxSymbols {
			out.Truncated = true
			break
		}
		if f.Kind == "import" {
			f.Name = strings.Trim(f.Name, "\"'`")
		}
		f.from, f.to = node.StartByte(), node.EndByte()
		f.Line, f.End = int(node.StartPoint().Row)+1, int(node.EndPoint().Row)+1
		if node.EndPoint().Column == 0 && f.End > f.Line {
			f.End-- // it ends with the newline of the line before
		}
		f.Signature = signature(node, text)
		if r := node.ChildByFieldName("receiver"); r != nil && f.Kind == "method" {
			f.receiver = receiver(r.Content(text))
		}
		list = append(list, f)
	}
	slices.SortStableFunc(list, func(a, b found) int {
		if a.from != b.from {
			return int(int64(a.from) - int64(b.from))
		}
		return int(int64(b.to) - int64(a.to))
	})
	spans := make([]span, len(list))
	out.Symbols = make([]wire.Symbol, len(list))
	for i, f := range list {
		spans[i], out.Symbols[i] = f.span, f.Symbol
	}
	return spans
}

// signature is the text of a declaration up to its body.
func signature(node *sitter.Node, text []byte) string {
	from, to := node.StartByte(), node.EndByte()
	body := node.ChildByFieldName("body")
	if body == nil {
		if v := node.ChildByFieldName("value"); v != nil { // const f = () => {...}
			body = v.ChildByFieldName("body")
		}
	}
	if body != nil {
		to = body.StartByte()
	} else if t := node.ChildByFieldName("type"); t != nil && (t.Type() == "struct_type" || t.Type() == "interface_type") {
		to = min(t.EndByte(), to)
		if i := strings.IndexByte(string(text[t.StartByte():to]), '{'); i >= 0 {
			to = t.StartByte() + uint32(i) //nolint:gosec // less than a file
		}
	}
	to = min(to, from+4*wire.MaxSignature)
	s := string(text[from:to])
	if body == nil {
		s, _, _ = strings.Cut(s, "\n")
	}
	s = wire.Line(s, wire.MaxSignature)
	return strings.TrimSpace(strings.TrimRight(s, " {:"))
}

// receiver is the type in the receiver of a Go method.
func receiver(s string) string {
	s = strings.Trim(s, "() ")
	if i := strings.IndexByte(s, '['); i >= 0 {
		s = s[:i]
	}
	if i := strings.LastIndexAny(s, " *"); i >= 0 {
		s = s[i+1:]
	}
	return wire.Line(s, wire.MaxName)
}

// nest says what each symbol is in.
func nest(lang string, spans []span, symbols []wire.Symbol) {
	var open []int
	for i, s := range spans {
		for len(open) > 0 && spans[open[len(open)-1]].to <= s.from {
			open = open[:len(open)-1]
		}
		sym := &symbols[i]
		sym.Depth = len(open)
		var names []string
		for _, o := range open {
			names = append(names, symbols[o].Name)
		}
		if s.receiver != "" {
			names = append(names, s.receiver)
		}
		sym.Parent = wire.Line(strings.Join(names, "."), 2*wire.MaxName)
		if len(open) > 0 && sym.Kind == "function" && (lang == "Python" || lang == "Rust") {
			switch symbols[open[len(open)-1]].Kind {
			case "class", "impl", "trait":
				sym.Kind = "method"
			}
		}
		// Imports and values hold no declarations that people look for by their place.
		switch sym.Kind {
		case "import", "constant", "variable":
		default:
			open = append(open, i)
		}
	}
}

// complexity counts the branches of each function; a branch counts for the innermost.
func (l *loaded) complexity(root *sitter.Node, spans []span, out *wire.Parsed) {
	var branches []span
	cursor := sitter.NewQueryCursor()
	defer cursor.Close()
	cursor.Exec(l.branches, root)
	for len(branches) < 10*wire.MaxSymbols {
		m, ok := cursor.NextMatch()
		if !ok {
			break
		}
		for _, c := range m.Captures {
			branches = append(branches, span{from: c.Node.StartByte(), to: c.Node.EndByte()})
		}
	}
	slices.SortStableFunc(branches, func(a, b span) int { return int(int64(a.from) - int64(b.from)) })
	var functions, inside []int // open functions, and open branches
	next := 0
	for _, b := range branches {
		for ; next < len(spans) && spans[next].from <= b.from; next++ {
			if k := out.Symbols[next].Kind; k == "function" || k == "method" {
				functions = append(functions, next)
				out.Symbols[next].Complexity = 1
			}
		}
		for len(functions) > 0 && spans[functions[len(functions)-1]].to <= b.from {
			functions = functions[:len(functions)-1]
		}
		for len(inside) > 0 && inside[len(inside)-1] <= int(b.from) {
			inside = inside[:len(inside)-1]
		}
		inside = append(inside, int(b.to))
		if len(functions) == 0 {
			continue
		}
		f := functions[len(functions)-1]
		depth := 0
		for _, to := range inside {
			if to <= int(spans[f].to) {
				depth++
			}
		}
		s := &out.Symbols[f]
		s.Complexity++
		s.Nesting = max(s.Nesting, depth)
	}
	for i := range out.Symbols {
		if s := &out.Symbols[i]; (s.Kind == "function" || s.Kind == "method") && s.Complexity == 0 {
			s.Complexity = 1
		}
	}
}

// maxSteps bounds the search for mistakes, in nodes.
const maxSteps = 200_000

// mistakes finds the first places that the grammar does not know. It goes only where
// there are some.
func mistakes(root *sitter.Node, text []byte, out *wire.Parsed) {
	cursor := sitter.NewTreeCursor(root)
	defer cursor.Close()
	for range maxSteps {
		n := cursor.CurrentNode()
		down := n.HasError()
		if n.IsError() || n.IsMissing() {
			m := wire.SyntaxError{Line: int(n.StartPoint().Row) + 1, Column: int(n.StartPoint().Column) + 1}
			if n.IsMissing() {
				m.Text = "missing " + n.Type()
			} else {
				m.Text = "unexpected " + wire.Line(string(text[n.StartByte():min(n.EndByte(), n.StartByte()+80)]), 60)
			}
			out.SyntaxErrors = append(out.SyntaxErrors, m)
			if len(out.SyntaxErrors) >= wire.MaxSyntaxErrors {
				return
			}
			down = false
		}
		if down && cursor.GoToFirstChild() {
			continue
		}
		for !cursor.GoToNextSibling() {
			if !cursor.GoToParent() {
				return
			}
		}
	}
}
