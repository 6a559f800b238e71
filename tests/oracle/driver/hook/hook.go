// Laid over etcd's package raft by `go build -overlay`, so that the oracle can set the random election timeout and
// read internals that decide later messages. It only reads and sets; it changes no behaviour.

package raft

import (
	"hash/crc32"
	"sort"
	"strconv"

	pb "go.etcd.io/etcd/raft/raftpb"
)

// OracleSetTimeout replaces the random election timeout drawn at the last change of role.
func (rn *RawNode) OracleSetTimeout(ticks int) { rn.raft.randomizedElectionTimeout = ticks }

// OracleApplied is the index the application was told to apply up to.
func (rn *RawNode) OracleApplied() uint64 { return rn.raft.raftLog.applied }

func num(b []byte, n uint64) []byte { return append(strconv.AppendUint(b, n, 10), ' ') }

func flag(b []byte, v bool) []byte {
	if v {
		return append(b, '1')
	}
	return append(b, '0')
}

// OracleState writes everything about the node that can alter what it does later, in the form lockstep.py uses.
func (rn *RawNode) OracleState(b []byte, msgText func([]byte, *pb.Message) []byte) []byte {
	r := rn.raft
	l := r.raftLog
	b = num(b, r.Term)
	b = num(b, r.Vote)
	b = num(b, uint64(r.state))
	b = num(b, r.lead)
	b = num(b, l.committed)
	b = num(b, l.applied)
	b = num(b, l.lastIndex())
	b = num(b, l.unstable.offset)
	b = num(b, uint64(r.electionElapsed))
	if r.state == StateLeader {
		b = num(b, uint64(r.heartbeatElapsed))
	}
	b = num(b, r.uncommittedSize)
	b = num(b, uint64(len(r.readOnly.readIndexQueue)))
	b = num(b, uint64(len(r.pendingReadIndexMessages)))
	b = num(b, uint64(len(r.readStates)))
	var log []byte
	for _, e := range l.allEntries() {
		log = AppendEntryText(log, &e)
	}
	b = num(b, uint64(crc32.ChecksumIEEE(log)))
	texts := make([]string, len(r.msgs))
	for i := range r.msgs {
		texts[i] = string(msgText(nil, &r.msgs[i]))
	}
	sort.Strings(texts)
	var all []byte
	for _, t := range texts {
		all = append(all, t...)
		all = append(all, '\n')
	}
	b = num(b, uint64(crc32.ChecksumIEEE(all)))
	if r.state == StateLeader {
		ids := r.prs.VoterNodes()
		for _, id := range ids {
			p := r.prs.Progress[id]
			b = append(b, '[')
			b = num(b, p.Match)
			b = num(b, p.Next)
			b = num(b, uint64(p.State))
			b = num(b, uint64(p.Inflights.Count()))
			b = flag(b, p.ProbeSent)
			b = flag(b, id == r.id || p.RecentActive)
			b = append(b, ']')
		}
	}
	return b
}

// AppendEntryText writes one log entry.
func AppendEntryText(b []byte, e *pb.Entry) []byte {
	b = strconv.AppendUint(b, e.Index, 10)
	b = append(b, ':')
	b = strconv.AppendUint(b, e.Term, 10)
	b = append(b, ':')
	b = strconv.AppendInt(b, int64(e.Type), 10)
	b = append(b, ':')
	b = append(b, e.Data...)
	return append(b, ',')
}
