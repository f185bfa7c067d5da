package ssh

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"countersign/test/needstest"
)

// A configuration that is taken means what it means to ssh(1) itself, which prints with -G what it would do.
func TestAnImportMeansWhatSSHMeans(t *testing.T) {
	needstest.Program(t, "ssh", "openssh-client")
	names := []string{"web", "db", "db-1", "gate"}
	pattern := rapid.SampledFrom([]string{"web", "db", "*", "w*", "!web", "db-?", "!*", "web db", "WEB", "web,db", "!db,*", `"web"`, "we[b]", "10.0.0.9", "host", "db.example.org", "*,!web", ""})
	word := rapid.SampledFrom([]string{"web", "db", "host", "originalhost", "user", "all", "root", "x", `"test host db"`, "a=host", `"host db"`, `'host db'`, "# host db", "=", "!host", "!originalhost"})
	criterion := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) string {
			key := rapid.SampledFrom([]string{"host", "originalhost", "!host", "Host", "OriginalHost", "!originalhost", "user", "localuser", "exec", "!exec", "tagged"}).Draw(t, "key")
			between := rapid.SampledFrom([]string{" ", "=", " = ", "\t"}).Draw(t, "between")
			value := pattern
			switch strings.ToLower(strings.TrimPrefix(key, "!")) {
			case "user", "localuser", "tagged":
				value = word
			case "exec":
				value = rapid.SampledFrom([]string{"true", "false", `"test -n host db"`, `"true host db"`, "true=host", "'true host db'"})
			}
			return key + between + value.Draw(t, "value")
		}),
		rapid.SampledFrom([]string{"all", "final", "canonical", "!final", "final all", "# host db", "#host db"}),
	)
	setting := rapid.SampledFrom([]string{
		"Port 9", "Port 2222", "User root", "User host", "HostName db", "HostName 10.0.0.9", "HostName %h.example.org", "ProxyJump gate", "ProxyJump none", "IdentityFile /k/1", "IdentityFile /k/2", "IdentitiesOnly yes",
		"Compression yes", "LogLevel DEBUG", "Port=7 # seven", "  User \"me\"", "ForwardAgent yes", "CertificateFile /k/c",
	})
	line := rapid.OneOf(
		rapid.Map(pattern, func(p string) string { return "Host " + p }),
		rapid.Map(rapid.SliceOfN(criterion, 1, 3), func(c []string) string { return "Match " + strings.Join(c, " ") }),
		setting, setting, setting,
	)
	whole, dir, taken := t, t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(line, 1, 7).Draw(t, "lines"), "\n") + "\n"
		file := write(whole, filepath.Join(dir, "config"), text)
		host := rapid.SampledFrom(names).Draw(t, "host")
		c, err := Import(file, host)
		if err != nil {
			return
		}
		out, err := exec.Command("ssh", "-G", "-F", file, host).Output()
		if err != nil {
			return // no configuration of ssh's
		}
		taken++
		says := map[string][]string{}
		for row := range strings.Lines(string(out)) {
			key, value, _ := strings.Cut(strings.TrimSpace(row), " ")
			says[key] = append(says[key], value)
		}
		keys := slices.DeleteFunc(says["identityfile"], func(k string) bool { return strings.HasPrefix(k, "~") })
		mine := slices.DeleteFunc(slices.Clone(c.Identities), func(k string) bool { return !strings.HasPrefix(k, "/k/") })
		jump := len(says["proxyjump"]) > 0 && says["proxyjump"][0] != "none"
		if got := []string{c.Host, strconv.Itoa(c.Port), c.User}; !slices.Equal(got, slices.Concat(says["hostname"], says["port"], says["user"])) ||
			!slices.Equal(keys, mine) || !slices.Equal(says["certificatefile"], c.Certificates) || jump != (len(c.Jump) > 0) || (says["identitiesonly"][0] == "yes") != c.IdentitiesOnly {
			t.Fatalf("%s:\n%s\nit is %+v, and to ssh %q %q %q %q %q %q", host, text, c, says["hostname"], says["port"], says["user"], keys, says["certificatefile"], says["proxyjump"])
		}
	})
	if taken == 0 {
		t.Error("none was taken")
	}
}
