package localhost

// tcpCases check TCP between fractions.
var tcpCases = []testCase{
	{"server-on-loopback-is-reached-by-all-others", false, both, func(t *trial) { t.everyServer(t.tcp, t.loopback) }},
	{"server-on-any-address-is-reached-by-all-others", false, both, func(t *trial) { t.everyServer(t.tcp, t.any) }},
	{"server-is-reached-by-its-own-fraction", true, both, func(t *trial) { t.ownServer(t.tcp) }},
	{"dual-stack-server-is-reached-by-both-families", false, onlyIPv6, tcpDualStack},
	{"each-server-answers-for-itself", false, both, func(t *trial) { t.eachForItself(t.tcp) }},
	{"both-ends-see-the-same-loopback-addresses", false, both, tcpAddresses},
	{"server-bound-to-device-lo-is-reached", false, both, tcpServerOnDevice},
	{"client-bound-to-device-lo-reaches-servers", false, both, tcpClientOnDevice},
	{"client-on-a-fixed-port-reaches-servers", false, both, tcpFixedClientPort},
	{"multipath-connections-work", false, both, tcpMultipath},

	{"dead-port-is-refused-at-once", true, both, func(t *trial) { t.deadPort(t.tcp, 30) }},
	{"port-of-a-stopped-server-is-refused-at-once", false, both, func(t *trial) { t.refusedOnceStopped(t.tcpEcho()) }},
	{"refused-port-is-reached-once-its-server-is-there", false, both, tcpLateServer},
	{"server-moves-between-fractions", false, both, tcpMoves},
	{"client-of-a-killed-server-is-told-at-once", false, both, tcpKilled},
	{"port-of-a-killed-server-is-refused-at-once", false, both, func(t *trial) { t.refusedOnceStopped(t.serverInProcess()) }},
	{"reset-of-the-client-reaches-the-server", false, both, tcpReset},

	{"many-short-connections-are-never-reset", false, both, tcpChurn},
	{"simultaneous-connects-all-succeed", false, both, tcpSimultaneous},
	{"thousands-of-connections-live-side-by-side", false, both, tcpThousands},
	{"thousands-of-connects-to-a-dead-port-are-refused", true, both, tcpThousandsRefused},
	{"full-backlog-is-not-refused", false, both, tcpFullBacklog},
	{"connects-beyond-the-backlog-succeed-once-accepted", false, both, tcpLateAccept},
	{"held-connections-of-all-pairs-live-side-by-side", false, both, tcpSideBySide},

	{"outgoing-connections-never-share-a-port", false, both, tcpOutgoing},
	{"listener-on-a-foreign-ephemeral-port-is-reached", false, both, tcpEphemeralListener},
	{"client-on-the-port-of-a-foreign-listener-disturbs-nobody", false, both, tcpClientOnListenersPort},
	{"first-of-two-clients-on-one-fixed-port-goes-on", false, both, func(t *trial) { t.twoClientsOnePort() }},

	{"bulk-both-ways-arrives-whole", false, both, func(t *trial) { t.bulk(t.fraction(2), t.fraction(1), 20<<20) }},
	{"bulk-within-a-fraction-arrives-whole", true, both, func(t *trial) { t.bulk(t.fraction(2), t.fraction(2), 20<<20) }},
	{"bulk-of-all-fractions-at-once-arrives-whole", false, both, tcpBulkRing},
	{"traffic-within-a-fraction-leaves-by-no-interface", true, both, tcpStaysInside},
	{"segments-are-larger-than-16-KiB", false, both, tcpSegments},
	{"large-request-arrives-whole-after-a-half-close", false, both, tcpLargeRequest},
	{"large-response-arrives-whole", false, both, tcpLargeResponse},
	{"server-that-half-closes-still-receives", false, both, tcpServerHalfCloses},
	{"urgent-bytes-keep-their-place", false, both, tcpUrgent},
}
