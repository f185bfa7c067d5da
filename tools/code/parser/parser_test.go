package parser

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"countersign/test/needstest"
	"countersign/tools/code/wire"
)

func needGrammars(t *testing.T) {
	t.Helper()
	if !grammars {
		needstest.Missing(t, "this build has no grammars, because it was made without a C compiler; apt-get install gcc")
	}
}

func TestEveryLanguageHasItsGrammar(t *testing.T) {
	needGrammars(t)
	ps := parsers{}
	for _, lang := range wire.Languages() {
		if p := ps.parse(t.Context(), wire.Request{Language: lang, Full: true}, []byte("x")); p.Refused != "" {
			t.Errorf("%s: %s", lang, p.Refused)
		}
	}
}

func TestItEndsWithItsInput(t *testing.T) {
	needGrammars(t)
	var in, out bytes.Buffer
	for _, lang := range []string{"Go", "Klingon"} {
		if err := wire.WriteRequest(&in, wire.Request{Language: lang}, []byte("package a\nfunc F() {}\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := serve(t.Context(), &in, &out, func() {}); err != nil {
		t.Fatal(err)
	}
	if b, err := wire.ReadFrame(&out, wire.MaxHead); err != nil || string(b) != `{"protocol":1}` {
		t.Errorf("%s %v", b, err)
	}
	p, err := wire.ReadAnswer(&out, 3)
	if err != nil || len(p.Symbols) != 1 || p.Symbols[0].Name != "F" {
		t.Errorf("%+v %v", p, err)
	}
	if p, err = wire.ReadAnswer(&out, 3); err != nil || p.Refused != "there is no grammar for this language" {
		t.Errorf("%+v %v", p, err)
	}
	if err := serve(t.Context(), strings.NewReader("\x00\x00\x00\x02{}\x00"), &out, func() {}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a request: %v", err)
	}
	if err := serve(t.Context(), strings.NewReader("\xff\xff\xff\xff"), &out, func() {}); !errors.Is(err, wire.ErrTooLong) {
		t.Errorf("a long request: %v", err)
	}
}
