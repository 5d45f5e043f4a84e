//! Text below the help of commands: details, examples, and where a setting is stored.

pub(super) const AFTER_HELP: &str = "\
A gateway:  rove gateway init --endpoint vpn.example.org:4500 \\
                 --network 10.77.0.0/24,fd77::/64 --dns 9.9.9.9
            rove gateway run
            rove gateway invite phone
A client:   rove up rove://...

Exit codes: 0 success; 1 failure, with one line that names cause and cure; 2 wrong usage.";

pub(super) const UP: &str = "\
By default all IPv4 and IPv6 traffic uses the tunnel. `--route` limits it to the given networks.

The command returns 0 after a round trip through the tunnel. If the tunnel is not up within
--timeout, it prints the cause and returns 1. DIR/client.toml stores settings permanently.";

pub(super) const CHECK: &str = "\
Each line begins with ok, failed or unknown. The checks: session, transport, interface, routes,
leaks, filters, kill switch, settings, resolver, names, MTU, clock. Returns 1 if one failed.";

pub(super) const GATEWAY_CHECK: &str = "\
Each line begins with ok, failed or unknown. The checks: interface, routes, NAT, forwarding, other
programs' packet filters, Internet, connections, clients, name servers, endpoints, clock. Two
checks send a test packet like a client's through this host's packet filters; Rove drops it before
it leaves. Only another host can test whether an endpoint is reachable. Returns 1 if one failed.";

pub(super) const INIT: &str = "\
The command creates gateway.toml, gateway.key, gateway.record, gateway.redb and operator.key in DIR.
The operator key signs the gateway's endpoints and networks; store it offline afterwards.";

pub(super) const INVITE: &str = "\
The invite holds no private key. Anyone who has it can enrol until it is used or expires, so send it
as you would send a password.";

pub(super) const ALLOW: &str = "\
By default a peer reaches the Internet, but no other peer, no address of the gateway and no private
network of the gateway. Examples of CIDR[:PORT]: 10.1.0.0/16, 192.168.1.10:22, [fd00::5]:443,
10.77.0.3 (another peer).

The gateway checks each packet against the list of the peer that sends it. For two peers to talk,
allow each the other's address without a port, because replies go to a port of the asker's choice.

If the peer is invited and has not enrolled yet, the invite stores the list.";

pub(super) const MOVE: &str = "\
NEW-ENDPOINT is HOST:PORT and replaces the first endpoint in gateway.toml. The gateway listens on a
new port at once and keeps the old port open until it restarts, so no packet is lost. A new address
must already belong to this host: the command changes no network settings.

The command needs operator.key in DIR to sign the new endpoint. Clients that are offline now find
the gateway by DNS if one of its endpoints is a name.";

pub(super) const SIGN: &str = "\
The command needs operator.key in DIR. It prints the signed values: read them, because every program
of the gateway's user can change gateway.toml. Restart the gateway afterwards.";

pub(super) const DICTIONARY: &str = "\
A dictionary has 8 to 4096 bytes of typical content. The command needs operator.key in DIR. It
prints one line: add it to the list `dictionaries` in section [saving] of gateway.toml and of each
client.toml, and restart both. A client uses it by a rule, for example
{ to = \"192.0.2.9\", with = \"NAME\" }.";

pub(super) const PATHS: &str = "\
RTT    round-trip time
OUT    rate that arrives at the gateway
IN     rate that arrives here
QUEUE  time that a packet waits before it is sent and on its way
LOSS   part of the packets that did not arrive
SHARE  part of the traffic, if several paths are in use

A hyphen means unknown: OUT, IN, QUEUE and LOSS after two seconds without traffic, SHARE while one
path carries all traffic. --watch redraws a terminal; elsewhere it prints a blank line and the table
again.";

pub(super) const FLOWS: &str = "\
Connections with kept data come first, then the most recently used. STATE is one of:

opening, established, closing  as in TCP
suspended                      no path carries; Rove keeps the connection open
resuming                       after an outage, Rove sends what the other end missed
assisted                       Rove acknowledges locally, because several links carry the connection
broken                         a crash lost kept data

[persistence] in DIR/client.toml and DIR/gateway.toml sets which connections are kept. A gateway
lists UDP flows only for clients with several links in use (mode full).";

pub(super) const EXPLAIN: &str = "\
Example: rove explain 192.0.2.9:443

All words must match the connection's protocol, class, addresses or ports, as `rove flows` prints
them.

`goes by` names the links of the connection; at a gateway, the client's addresses. `chosen` names
the reason: the mode, the scheduler or the connection's class. DNS queries and acknowledgements use
the path on which they arrive first, unless they are duplicated on several paths.";

pub(super) const REHEARSE: &str = "\
Rove stops using the link as if it were unplugged, and does not change the link itself. It uses the
link again when the time is over, when Rove stops, or two seconds after you interrupt this command.
Without --force, Rove refuses if no other link is known to work.

PAUSE is the longest time in which neither end of a connection received new data, measured from
three seconds before to three seconds after. Connections without traffic show a pause and no rate. A
hyphen means that the connection was not open.";

pub(super) const MODE: &str = "\
full    all links carry traffic together
backup  one link carries traffic; the others are tested and ready to take over
single  one link carries traffic; if it fails, Rove looks for another

Permanent setting: `mode = \"full\"` in section [paths] of DIR/client.toml.";

pub(super) const SCHEDULER: &str = "\
earliest     the link on which the packet arrives first, by rate, delay and queue
rtt          the link with the shortest round trip that has room, then the next
round-robin  all links in turn
redundant    every link that has room; as fast as the fastest link, and no link's loss is felt
loss         all links, in proportion to the part of the packets that arrives
rate         the fastest link up to its measured rate, then the next
latency      only the link with the shortest round trip

The scheduler is used in mode `full`, by client and gateway. No scheduler exceeds the rate of a
link, and packets are delivered in order. Permanent setting: `scheduler = \"earliest\"` in section
[paths] of DIR/client.toml.";

pub(super) const RECOVERY: &str = "\
throughput  uses the full rate of all links: a connection's queue may last until a lost packet is
            repaired, at least 80 ms and longer on links with a long round trip
latency     keeps a connection's queue at 5 ms; after losses the rate is lower

The setting is used in mode `full`, by client and gateway. Other connections never wait behind this
queue, and assisted connections (see `rove flows`) always have a short one. Permanent setting:
`recovery = \"latency\"` in section [paths] of DIR/client.toml.";

pub(super) const DATA: &str = "\
save    always
normal  never
auto    while the link in use is metered

To save data, packets share datagrams, calls and DNS queries get no copies on a second link, and
backup links are tested every minute instead of every 15 seconds. The gateway does the same for what
it sends. Permanent setting: `data = \"auto\"` in section [saving] of DIR/client.toml.";

pub(super) const MANAGER: &str = "\
one-per-link  the best path of each link
full-mesh     one path of each link to each address of the gateway

Permanent setting: `manager = \"full-mesh\"` in section [paths] of DIR/client.toml.";

pub(super) const SUBFLOWS: &str = "\
Each path has its own UDP port. Several paths help if a network limits the rate of each flow. Rove
keeps at most 12 paths, those of the best links first.

Permanent setting: `subflows = 2` in section [paths] of DIR/client.toml.";

pub(super) const SET: &str = "\
`rove set link.NAME.KEY VALUE` changes a setting of the link NAME:

use      always, backup (only while no other link works), or never
cost     0 to 1000; Rove prefers links of lower cost, whatever their type
metered  yes or no; a metered link is a backup link unless `use` says otherwise
cap      data limit for both directions, as 500MB/day or 20GB/month; or none
at-cap   use of the link after its cap is reached: backup, or never [default: never]

Example: rove set link.wwan0.use backup. Permanent setting: section [[link]] of DIR/client.toml.";

pub(super) const GATEWAY_DOWN: &str = "\
A stopped gateway leaves them in place so that connections survive a restart. Its files stay: `rove
gateway run` starts it again.";
