package config

import (
	"strings"
	"testing"
)

func TestAPlaceOfTheStreamIsWhole(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		s   StreamConfig
		bad string // a part of what is wrong
	}{
		{StreamConfig{To: StreamFile, Path: "/var/log/x"}, ""},
		{StreamConfig{To: StreamFile, Path: "x"}, "absolute path"},
		{StreamConfig{To: StreamFile, Path: "/x", URL: "https://x"}, "nothing else"},
		{StreamConfig{To: StreamOTLP, URL: "https://x:4318/v1/logs", TokenEnv: "T", CA: "/ca"}, ""},
		{StreamConfig{To: StreamOTLP, URL: "http://127.0.0.1:4318/v1/logs"}, ""},
		{StreamConfig{To: StreamOTLP, URL: "http://x/v1/logs"}, "https://"},
		{StreamConfig{To: StreamOTLP}, "https://"},
		{StreamConfig{To: StreamOTLP, URL: "https://x", Path: "/x"}, "no path"},
		{StreamConfig{To: StreamSyslog, Address: "x:6514"}, ""},
		{StreamConfig{To: StreamSyslog, Address: "x"}, "host and a port"},
		{StreamConfig{To: StreamSyslog, Address: "x:1", TokenEnv: "T"}, "host and a port"},
		{StreamConfig{To: StreamSyslog, Address: "x:1", Cert: "/c"}, "cert and key"},
		{StreamConfig{To: "kafka"}, "use file, otlp or syslog"},
	} {
		err := checkStream("bot.yaml", []StreamConfig{tc.s})
		if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%+v: %v", tc.s, err)
		}
	}
	if checkStream("bot.yaml", []StreamConfig{{To: StreamFile, Path: "/x"}, {To: StreamFile, Path: "/x"}}) == nil {
		t.Error("the same twice is taken")
	}
}
