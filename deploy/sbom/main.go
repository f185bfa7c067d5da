// Command sbom writes the list of what a built program is made of, as CycloneDX 1.6 JSON.
//
//	go run ./deploy/sbom [-version V] [-commit C] [-modcache DIR] BINARY [HELPER ...] > sbom.cdx.json
//
// HELPER is a program that is given away with the first one and has parts of its own.
//
// Everything comes from the program itself (the build information that the go command puts
// into it, names of linked C grammars, sections of a static C library) and from the source of
// its modules in the module cache, where their licence files are. The same program, flags and
// SOURCE_DATE_EPOCH give the same bytes.
//
// It runs nothing, asks no network and does not look for vulnerabilities. It gives no
// names of licences, because their texts differ in words that matter and some modules have
// two: it names the licence files of each module, with their hashes. It knows no edges between
// modules, because the program does not.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run is main with everything that it touches handed in. Nothing is written to out when it
// fails.
func run(ctx context.Context, args []string, getenv func(string) string, out, errs io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(errs, "usage: sbom [-version V] [-commit C] [-modcache DIR] BINARY [HELPER ...] > sbom.cdx.json")
		flags.PrintDefaults()
	}
	version := flags.String("version", "", "the program's version; it must be in the program")
	commit := flags.String("commit", "", "the commit that it was built from; it must be in the program")
	cache := flags.String("modcache", "", "the module cache; default: GOMODCACHE, else pkg/mod below GOPATH")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return errors.New("there are 0 arguments; give the program's file")
	}
	if *cache == "" {
		*cache = moduleCache(getenv)
	}
	stamp, err := epoch(getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	p, err := read(flags.Arg(0))
	if err != nil {
		return err
	}
	if err := p.named(*version, *commit); err != nil {
		return err
	}
	for _, path := range flags.Args()[1:] {
		h, err := read(path)
		if err != nil {
			return err
		}
		h.version = p.version
		p.helpers = append(p.helpers, h)
	}
	bom, err := assemble(ctx, p, stamp, func(path, version string) ([]licence, error) { return licences(*cache, path, version) })
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := encode(&text, bom); err != nil {
		return err
	}
	_, err = out.Write(text.Bytes())
	return err
}

// encode writes CycloneDX 1.6 JSON.
func encode(w io.Writer, bom *cdx.BOM) error {
	e := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	if err := e.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("the list cannot be written as CycloneDX 1.6: %w", err)
	}
	return nil
}

// epoch reads seconds since 1970, as https://reproducible-builds.org/specs/source-date-epoch/
// has them; no text is the zero time, and a list without a time.
func epoch(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q; set it to a number of seconds since 1970", text)
	}
	return time.Unix(n, 0).UTC(), nil
}

// moduleCache is where the go command keeps modules, unless its own configuration file says
// otherwise, which only that command reads: then give -modcache.
func moduleCache(getenv func(string) string) string {
	if dir := getenv("GOMODCACHE"); dir != "" {
		return dir
	}
	first, _, _ := strings.Cut(build.Default.GOPATH, string(filepath.ListSeparator))
	return filepath.Join(first, "pkg", "mod")
}
