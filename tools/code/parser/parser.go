// Package parser extracts the declarations of source code with tree-sitter grammars: C code that
// reads untrusted text. Only the program countersign-parser imports this package, so a text that
// crashes the grammars ends one of its processes and nothing else.
package parser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"countersign/tools/code/wire"
)

// exitHung is the exit code of a process that exceeded the time limit for a text.
const exitHung = 3

// ErrNoGrammars means that the program was built without cgo.
var ErrNoGrammars = errors.New("this build has no grammars; build it with cgo, which needs a C compiler")

// Available reports whether this build has grammars.
func Available() bool { return grammars }

// Run reads texts from stdin and writes their declarations to stdout, until stdin ends or ctx is
// done. It limits the memory of the whole process, so nothing else may run in it. It returns an
// error if the input violates the protocol of package wire, and ErrNoGrammars in a build without
// grammars.
func Run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	if !grammars {
		return ErrNoGrammars
	}
	if err := confine(); err != nil {
		return fmt.Errorf("the parser's memory could not be limited: %w", err)
	}
	// A text may keep C code busy forever, and the parent that would kill this process may be gone.
	// So it exits on its own.
	return serve(ctx, stdin, stdout, func() { os.Exit(exitHung) })
}

func serve(ctx context.Context, stdin io.Reader, stdout io.Writer, hung func()) error {
	in, out := bufio.NewReaderSize(stdin, 64<<10), bufio.NewWriterSize(stdout, 64<<10)
	say := func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := wire.WriteFrame(out, b); err != nil {
			return err
		}
		return out.Flush()
	}
	if err := say(wire.Hello{Protocol: wire.Protocol}); err != nil {
		return err
	}
	ps := parsers{}
	for ctx.Err() == nil {
		q, text, err := wire.ReadRequest(in)
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		watchdog := time.AfterFunc(wire.FileTime+time.Second, hung)
		answer := ps.parse(ctx, q, text)
		watchdog.Stop()
		if err := say(answer); err != nil {
			return err
		}
	}
	return ctx.Err()
}
