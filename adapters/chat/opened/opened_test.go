package opened

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestAKeyIsKnownOnceItsThreadIs(t *testing.T) {
	o := New()
	o.Failed("C1/k")
	if m, doubt := o.Get("C1/k"); m != "" || !doubt {
		t.Fatalf("%q %v", m, doubt)
	}
	o.Done("C1/k", "m1")
	if m, doubt := o.Get("C1/k"); m != "m1" || doubt || !o.Has("m1") || o.Has("m2") {
		t.Fatalf("%q %v", m, doubt)
	}
	for i := range 2 * most {
		o.Done(fmt.Sprint(i), "m")
		o.Failed(fmt.Sprint(i))
	}
	if len(o.known) > most || len(o.doubt) > most {
		t.Fatalf("%d and %d are remembered", len(o.known), len(o.doubt))
	}
}

func TestOneThreadIsOpenedAtATime(t *testing.T) {
	o := New()
	done, err := o.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Turn(over); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	done()
	if _, err := o.Turn(t.Context()); err != nil {
		t.Fatal(err)
	}
}
