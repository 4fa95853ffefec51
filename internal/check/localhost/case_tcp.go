package localhost

// tcpCases ask for TCP between fractions.
var tcpCases = []Case{
	{"tcp", "server-on-loopback-is-reached-by-all-others", false, both, func(t *trial) error { return t.everyServer(t.tcp, t.loopback) }},
	{"tcp", "server-on-any-address-is-reached-by-all-others", false, both, func(t *trial) error { return t.everyServer(t.tcp, t.any) }},
	{"tcp", "server-is-reached-by-its-own-fraction", true, both, func(t *trial) error { return t.ownServer(t.tcp) }},
	{"tcp", "dual-stack-server-is-reached-by-both-families", false, onlyIPv6, tcpDualStack},
	{"tcp", "each-server-answers-for-itself", false, both, func(t *trial) error { return t.eachForItself(t.tcp) }},
	{"tcp", "both-ends-see-the-same-loopback-addresses", false, both, tcpAddresses},
	{"tcp", "server-bound-to-device-lo-is-reached", false, both, tcpServerOnDevice},
	{"tcp", "client-bound-to-device-lo-reaches-servers", false, both, tcpClientOnDevice},
	{"tcp", "client-on-a-fixed-port-reaches-servers", false, both, tcpFixedClientPort},
	{"tcp", "multipath-connections-work", false, both, tcpMultipath},

	{"tcp", "dead-port-is-refused-at-once", true, both, func(t *trial) error { return t.deadPort(t.tcp, 30) }},
	{"tcp", "port-of-a-stopped-server-is-refused-at-once", false, both, tcpStopped},
	{"tcp", "refused-port-is-reached-once-its-server-is-there", false, both, tcpLateServer},
	{"tcp", "server-moves-between-fractions", false, both, tcpMoves},
	{"tcp", "client-of-a-killed-server-is-told-at-once", false, both, tcpKilled},
	{"tcp", "port-of-a-killed-server-is-refused-at-once", false, both, tcpKilledPort},
	{"tcp", "reset-of-the-client-reaches-the-server", false, both, tcpReset},

	{"tcp", "many-short-connections-are-never-reset", false, both, tcpChurn},
	{"tcp", "simultaneous-connects-all-succeed", false, both, tcpSimultaneous},
	{"tcp", "full-backlog-is-not-refused", false, both, tcpFullBacklog},
	{"tcp", "connects-beyond-the-backlog-succeed-once-accepted", false, both, tcpLateAccept},
	{"tcp", "held-connections-of-all-pairs-live-side-by-side", false, both, tcpSideBySide},

	{"tcp", "outgoing-connections-never-share-a-port", false, both, tcpOutgoing},
	{"tcp", "listeners-on-port-0-never-share-a-port", false, both, func(t *trial) error { return t.givenPorts(t.tcp) }},
	{"tcp", "listener-on-a-foreign-ephemeral-port-is-reached", false, both, tcpEphemeralListener},
	{"tcp", "client-on-the-port-of-a-foreign-listener-disturbs-nobody", false, both, tcpClientOnListenersPort},
	{"tcp", "first-of-two-clients-on-one-fixed-port-goes-on", false, both, tcpSameClientPort},

	{"tcp", "bulk-both-ways-arrives-whole", false, both, func(t *trial) error { return t.bulk(t.fraction(2), t.fraction(1), 20<<20) }},
	{"tcp", "bulk-within-a-fraction-arrives-whole", true, both, func(t *trial) error { return t.bulk(t.fraction(2), t.fraction(2), 20<<20) }},
	{"tcp", "bulk-of-all-fractions-at-once-arrives-whole", false, both, tcpBulkRing},
	{"tcp", "traffic-within-a-fraction-leaves-by-no-interface", true, both, tcpStaysInside},
	{"tcp", "segments-are-larger-than-16-KiB", false, both, tcpSegments},
	{"tcp", "large-request-arrives-whole-after-a-half-close", false, both, tcpLargeRequest},
	{"tcp", "large-response-arrives-whole", false, both, tcpLargeResponse},
	{"tcp", "server-that-half-closes-still-receives", false, both, tcpServerHalfCloses},
	{"tcp", "urgent-bytes-keep-their-place", false, both, tcpUrgent},
}
