package ssh

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"os"
	"testing"

	xssh "golang.org/x/crypto/ssh"
)

// rsaKey writes a second kind of host key and returns its file.
func rsaKey(t testing.TB, file string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block, err := xssh.MarshalPrivateKey(key, "test")
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(pem.EncodeToMemory(block)))
	signer, err := xssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file+".pub", string(xssh.MarshalAuthorizedKey(signer.PublicKey())))
	return file
}

func readPub(t testing.TB, file string) xssh.PublicKey {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, _, err := xssh.ParseAuthorizedKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
