package deed

import "testing"

func TestLists(t *testing.T) {
	for command, want := range map[string]bool{
		"ls -lS /var/log": true, "ls": true, "find /srv -name '*.log' -size +1M": true, "du -sk /var/* | sort -n | tail -n 5": true, "/bin/ls x": true, "df -h": true,
		"": false, "cat README": false, "find . -exec cat {} +": false, "ls | tail -n 3 README": false, "ls; cat README": false, "ls $(cat README)": false,
		"./ls": false, "ls | xargs cat": false, "ls | sort README": false, "ls | sort < README": false, "curl https://x.example": false, "ls 'a": false,
	} {
		if got := Lists(command); got != want {
			t.Errorf("%q: %v", command, got)
		}
	}
}
