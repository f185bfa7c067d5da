package address

import (
	"os"
	"path/filepath"
	"testing"

	"countersign/config"
)

func TestTheBotsOwnAddress(t *testing.T) {
	for _, tc := range []struct{ rule, says, listen, want string }{
		{"what the running bot says", "https://0.0.0.0:8443\n", "127.0.0.1:1", "https://127.0.0.1:8443"},
		{"a file that says nothing is passed over", "rubbish", "0.0.0.0:9", "http://127.0.0.1:9"},
		{"without a file it is the environment", "", ":9", "http://127.0.0.1:9"},
		{"without either it is the default", "", "", "http://" + Default},
	} {
		dir := t.TempDir()
		if tc.says != "" {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(tc.says), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := URL(config.Env{DataDir: dir, Listen: tc.listen}); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.rule, got, tc.want)
		}
	}
}

func TestOwnAddress(t *testing.T) {
	for listen, want := range map[string]string{
		"": Default, "127.0.0.1:9": "127.0.0.1:9", ":9": "127.0.0.1:9", "0.0.0.0:9": "127.0.0.1:9", "[::]:9": "127.0.0.1:9", "10.0.0.1:9": "10.0.0.1:9", "odd": "odd",
	} {
		if got := local(listen); got != want {
			t.Errorf("%q: %q", listen, got)
		}
	}
}
