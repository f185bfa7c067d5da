// Package publicnet tells addresses of the internet from those that only this machine and its networks
// have, for whoever connects to an address that somebody else named.
package publicnet

import (
	"net/netip"
	"slices"

	"code.dny.dev/ssrf"
)

// metadataAddrs are the addresses that serve cloud credentials, and some that belong to the host.
// No configuration allows them. Source: the clouds' documentation of their instance metadata
// services.
var metadataAddrs = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, GCP, Azure, Oracle, OpenStack, DigitalOcean, Hetzner
	netip.MustParseAddr("169.254.169.253"), // the resolver of AWS
	netip.MustParseAddr("169.254.170.2"),   // AWS ECS tasks
	netip.MustParseAddr("169.254.170.23"),  // AWS EKS pods
	netip.MustParseAddr("168.63.129.16"),   // Azure's wire server, a public address by its number
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle, older
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::253"),   // AWS, the resolver
	netip.MustParseAddr("fd00:ec2::23"),    // AWS EKS pods
	netip.MustParseAddr("fd20:ce::254"),    // GCP
	netip.MustParseAddr("fe80::a9fe:a9fe"), // OpenStack
}

// IsMetadata reports whether an address serves cloud credentials, or is the host's own.
func IsMetadata(addr netip.Addr) bool { return slices.Contains(metadataAddrs, addr.Unmap()) }

var public = ssrf.New(ssrf.WithAnyPort())

// IsPublic reports whether an address is one of the internet.
func IsPublic(addr netip.Addr) bool {
	addr = addr.Unmap()
	return addr.IsValid() && addr.Zone() == "" && addr.IsGlobalUnicast() && !IsMetadata(addr) && public.SafeAddr(addr) == nil
}
