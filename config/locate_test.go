package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheSettingsOfTheAccountAreFound(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	for _, name := range []string{"COUNTERSIGN_CONFIG", "OPENAI_MODEL", "OPENAI_BASE_URL"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := Locate(""); err != nil || os.Getenv("COUNTERSIGN_CONFIG") != "" {
		t.Fatalf("without any: %v", err)
	}
	dir := filepath.Join(home, "countersign")
	file, variables := filepath.Join(dir, FileName), filepath.Join(dir, EnvironmentName)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{file: "{}\n", variables: "# why\n\nOPENAI_MODEL=m=1 x\n OPENAI_BASE_URL=u\nnothing\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("OPENAI_BASE_URL", "mine")
	if err := Locate(""); err != nil || os.Getenv("COUNTERSIGN_CONFIG") != file || os.Getenv("OPENAI_MODEL") != "m=1 x" || os.Getenv("OPENAI_BASE_URL") != "mine" {
		t.Errorf("%v: %q %q %q", err, os.Getenv("COUNTERSIGN_CONFIG"), os.Getenv("OPENAI_MODEL"), os.Getenv("OPENAI_BASE_URL"))
	}
	t.Setenv("COUNTERSIGN_CONFIG", "other")
	if err := Locate(""); err != nil || os.Getenv("COUNTERSIGN_CONFIG") != "other" {
		t.Errorf("a chosen one: %v", err)
	}
	own := filepath.Join(t.TempDir(), FileName) // with variables beside it
	if err := os.WriteFile(filepath.Join(filepath.Dir(own), EnvironmentName), []byte("OPENAI_MODEL=own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for chosen, model := range map[string]string{own: "own", filepath.Join(filepath.Dir(own), "test.yaml"): "m=1 x"} {
		if err := os.Unsetenv("OPENAI_MODEL"); err != nil {
			t.Fatal(err)
		}
		if err := Locate(chosen); err != nil || os.Getenv("COUNTERSIGN_CONFIG") != chosen || os.Getenv("OPENAI_MODEL") != model {
			t.Errorf("%s: %v, %q with the model %q", chosen, err, os.Getenv("COUNTERSIGN_CONFIG"), os.Getenv("OPENAI_MODEL"))
		}
	}
	t.Setenv("COUNTERSIGN_CONFIG", "")
	if err := os.Chmod(variables, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Locate(""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("secrets that others may read: %v", err)
	}
}
