package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTheTableIsWhatThisMakes(t *testing.T) {
	want, err := os.ReadFile("../languages.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("languages.txt is not what go-enry's tables say now: go run ./tools/code/gen >tools/code/languages.txt")
	}
}
