//! Examples below the help of commands.

pub(super) const AFTER_HELP: &str = "\
A gateway:  rove gateway init --endpoint vpn.example.org:4500 \\
                 --network 10.77.0.0/24,fd77::/64 --dns 9.9.9.9
            rove gateway run
            rove gateway invite phone
A client:   rove up rove://...

Exit codes: 0 done, 1 failed (one line names cause and cure), 2 wrong usage.";

pub(super) const UP: &str = "\
Everything goes through the tunnel, IPv6 included, unless --route names what shall. Returns 0 only
after a round trip through the tunnel, else 1 with the cause within --timeout. What is written in
DIR/client.toml needs no option.";

pub(super) const CHECK: &str = "\
Each line begins with ok, failed or unknown. The checks: session, transport, interface, routes,
leaks, filters, kill switch, settings, resolver, names, MTU, clock. Returns 1 if one failed.";

pub(super) const GATEWAY_CHECK: &str = "\
Each line begins with ok, failed or unknown. The checks: interface, routes, NAT, forwarding, other
programs' packet filters, Internet, connections, clients, name servers, endpoints, clock. For two of
them a test packet like a client's passes this host's filters and is dropped before it leaves.
Whether an endpoint is reached from outside can only be told from outside. Returns 1 if one fails.";

pub(super) const INIT: &str = "\
Afterwards DIR holds gateway.toml, gateway.key, gateway.record, gateway.redb and operator.key. The
operator key signs the gateway's endpoints and networks; move it offline when you are done.";

pub(super) const INVITE: &str = "\
The invite holds no private key. Whoever has it can enrol until it is used or expires, so hand it
over as you would a password.";

pub(super) const ALLOW: &str = "\
A peer reaches the Internet, and neither other peers, the gateway's own addresses nor its private
networks, unless allowed here. Examples: 10.1.0.0/16, 192.168.1.10:22, [fd00::5]:443, 10.77.0.3
(another peer).

Packets are judged one by one, by the list of the peer that sends them. So for two peers to talk,
each needs the other's address, without a port: replies go to whatever port a question came from.

For a peer that is invited and has not enrolled yet, the invite keeps the list.";

pub(super) const MOVE: &str = "\
NEW-ENDPOINT is HOST:PORT, and takes the place of the first endpoint in gateway.toml. A new port is
listened on at once; the old one stays open until the gateway starts again, so nothing is lost. A
new address must lead here already: this command tells clients, and changes no network. operator.key
must be in DIR, since it signs where the gateway is reached. Clients that are away find the gateway
by its name, if one of its endpoints has one.";

pub(super) const SIGN: &str = "\
operator.key must be in DIR. The command prints what it signed: read it, because programs that run
as the gateway's user can change gateway.toml too. Restart the gateway afterwards.";

pub(super) const PATHS: &str = "\
RTT is the round trip, OUT and IN what arrives of each direction, QUEUE how long what is sent waits
on its way. A hyphen stands for what is not known: rates, QUEUE and LOSS while nothing was sent for
two seconds, SHARE while nothing goes by several. --watch draws anew on a terminal; elsewhere what
is shown follows what was shown before, after an empty line.";

pub(super) const FLOWS: &str = "\
What is held comes first, then what was used last. STATE is how far a connection is (opening,
established, closing); or suspended while no path carries, resuming while its other end gets what it
missed, assisted while it is acknowledged here and several links carry it, broken when a crash lost
what was held. [persistence] in DIR/client.toml and DIR/gateway.toml says what is held. Of datagrams
a gateway knows the flows of clients whose links carry together (mode full).";

pub(super) const EXPLAIN: &str = "\
Example: rove explain 192.0.2.9:443

Words are compared with a connection's protocol, class, addresses and ports; all of them must fit.

`goes by` names its links, at a gateway the addresses where its paths lead; `chosen` says whether
the mode, the scheduler or the connection itself made it that. What somebody waits for (questions,
acknowledgements) leaves at once by the path that has it there first, unless it goes by several.";

pub(super) const REHEARSE: &str = "\
The link itself is not touched: Rove leaves it alone as if it had been unplugged, and takes it back
when the time is over, or when Rove ends, and two seconds after this command was interrupted. The
only link that is known to carry is left in use, unless --force is given.

A PAUSE is the longest time in which neither end of a connection got anything new; it is watched for
three seconds before and after as well. One that had nothing to say, or got nothing through, shows a
pause and no rate; a hyphen stands for the time in which it was not open.";

pub(super) const MODE: &str = "\
full    all carry, together
backup  one carries; by each of the others a path is proven before it is needed
single  one carries; where it dies another is looked for

For every start: `mode = \"full\"` below [paths] in DIR/client.toml.";

pub(super) const SCHEDULER: &str = "\
earliest     each packet goes where it arrives first, by rate, delay and what waits there
rtt          by the link with the shortest round trip while there is room on it, then the next
round-robin  by each in its turn
redundant    by every link that has room for it; as fast as the fastest, and no link is missed
loss         in proportion to the part that arrives by each
rate         by the fastest up to what it was measured to carry, then the next
latency      by the link with the shortest round trip only

With mode `full`; the gateway chooses likewise. None sends faster on a link than that
carries, and what arrives is in order. For every start: `scheduler = \"earliest\"` below [paths] in
DIR/client.toml.";

pub(super) const RECOVERY: &str = "\
throughput  what the links carry in sum: at the tunnel's entry as much of a connection may wait as
            lasts until what one of them lost is there, 80 ms and more where a link is long
latency     a short queue there, 5 ms; where something is lost, less of the sum

With `rove set mode full`; the gateway does likewise. Others do not wait behind it either way. What
is assisted (`rove flows`) has a short queue anyway. For every start: `recovery = \"latency\"` below
[paths] in DIR/client.toml.";

pub(super) const MANAGER: &str = "\
one-per-link  by each link the best path carries
full-mesh     by each link one path to each of the gateway's addresses

For every start: `manager = \"full-mesh\"` below [paths] in DIR/client.toml.";

pub(super) const SUBFLOWS: &str = "\
Each path has a port of its own: of use where a network gives every connection its share, or limits
each by itself. 12 paths are kept at most, with the one in use; the best links first.

For every start: `subflows = 2` below [paths] in DIR/client.toml.";

pub(super) const SET: &str = "\
Of one link, by its name, `rove set link.NAME.KEY VALUE` changes:

use      always, backup (while no other carries), or never
cost     0 to 1000; a link that costs less is preferred, of whatever type
metered  yes or no; a metered link is for backup, unless `use` says otherwise
cap      as 500MB/day or 20GB/month, both directions; or none
at-cap   what the link is for when its cap is reached: backup, or never [default: never]

As in: rove set link.wwan0.use backup. For every start: [[link]] in DIR/client.toml.";

pub(super) const GATEWAY_DOWN: &str = "\
A gateway that ends leaves them, so that connections live through a restart. Its files stay: `rove
gateway run` starts it again.";
