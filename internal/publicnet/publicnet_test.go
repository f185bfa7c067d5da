package publicnet_test

import (
	"net/netip"
	"testing"

	"countersign/internal/publicnet"
)

func TestOnlyTheInternetIsPublic(t *testing.T) {
	for _, a := range []string{
		"127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "198.18.0.1", "240.0.0.1", "255.255.255.255", "0.0.0.0", "224.0.0.1",
		"168.63.129.16", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "fc00::1", "fe80::1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::", "fd00:ec2::254",
	} {
		if publicnet.IsPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	for _, a := range []string{"8.8.8.8", "2606:4700:4700::1111"} {
		if !publicnet.IsPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s isn't public", a)
		}
	}
}
