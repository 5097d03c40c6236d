// Package abuse notices that somebody else uses a credential: it compares what
// a credential does in a minute with what that credential usually does.
//
// # What is known of a credential
//
// A Detector keeps a profile of each credential in a fixed size. It holds what
// is usual, with a half-life of a week: the networks (/24 of IPv4, /48 of IPv6)
// and the client software that calls came from, as hashes; how the calls are
// spread over kinds of operations; the size of what they carry, as its binary
// logarithm; and the highest values that the measures below had in minutes that
// were not suspicious. Beside it two halves of a minute of calls are counted: all
// of them, and once more those of strangers, which are the calls from a network or
// a client that is not known. A thief who calls seldom beside a busy owner
// changes nothing in the sum; among the strangers he is alone.
//
// # What is suspicious
//
// Look measures each profile's last half to whole minute:
//
//   - networks: how many networks called that are not known
//   - addresses: the entropy of the networks, in bits
//   - client: the part of the calls from client software that is not known, by
//     name and not only by version
//   - operations: how unlike the usual mix the operations are, as the
//     Jensen-Shannon divergence (J. Lin, "Divergence Measures Based on the
//     Shannon Entropy", 1991), which is 0 for the same mix and 1 for one without
//     anything in common, and unlike that of Kullback and Leibler is finite for
//     operations that were never seen
//   - size: how many doublings lie between the mean size and the usual one
//   - denials: the part of the calls that were denied
//   - retries: the part that came before the Retry-After of the credential was
//     over, where that is well above the part of all credentials
//
// A measure is a signal when it is above a floor and well above its highest usual
// value, so that a credential which is erratic by nature is not told of. The
// signals are in four groups: where the calls come from (networks, addresses),
// what sends them (client), what they do (operations, size) and how they end
// (denials, retries). Signals of two groups make a flag, as does one gross
// signal. Signals of one group do not: servers move, tools are changed, and jobs
// do by night what nobody does by day.
//
// Beside that, what is rare of the few calls of a stranger is added up, each
// thing against the part of the credential's own half minutes that have it: see
// evidence. It takes five calls where several rare things come together, is
// never made by one of them alone, and tells what it consists of.
//
// What starts in a new network has unusual first calls. Of software that is known
// they are not judged before there are enough for each new network.
//
// A credential that is younger than a day here, or has made few calls, is only
// told of for gross signals, and as not learnt: nothing should be done to it.
//
// # Learning
//
// A half of a minute is learnt when it is over. Under an open flag nothing is
// learnt: networks and clients are only noted as suspects. When somebody clears
// the flag the suspects become known, and the highest measures usual. What is
// new is not known before a few hours, so that it takes a thief hours of being
// unsuspicious to become usual.
//
// Profiles are learnt by each API node from the calls that it serves, and
// stored and read by all. Two of one credential are merged by the larger of each
// number, and the frequencies of the one that knows more halves, after both were
// brought to the same time: merging twice changes
// nothing, and as it is shares that are compared, a part of the traffic is as
// good as all of it. A thief whose calls are spread over many nodes has to make
// the fewest that a signal needs on one of them.
//
// # What it never does
//
// It keeps no addresses and no names. It decides nothing: the service's policy
// says what follows of a flag. Everything is a function of what it is given; it
// has no clock, no randomness and no goroutine. The memory is bounded: at most
// MaxCredentials are kept, and one for each shard; of the shard of a new one, that
// goes which has not called for longest.
//
// What a call pays is Observe: one lock of a 256th of the credentials, a look-up
// in an index and a few counters of the first 256 bytes of a profile, no
// allocation.
package abuse
