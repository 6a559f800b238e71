// The oracle: nodes of etcd's raft library, driven by one-line commands on stdin, one line of answer each.
//
//	n COUNT ELECTION HEARTBEAT PREVOTE CHECKQUORUM MAXMSG MAXINFLIGHT MAXUNCOMMITTED   forget all, start a new run
//	t NODE TIMEOUT COUNT HOLD      set the random election timeout, tick COUNT times
//	c NODE HOLD                    campaign
//	p NODE HOLD DATA...            propose (one message with an entry for each DATA)
//	d MESSAGE HOLD                 deliver a message (numbered in the order in which Readys gave them, sorted)
//	r NODE HOLD CONTEXT            read index
//	y NODE                         do the Readys put off by HOLD=1
//	o NODE TO TERM                 put a message on its way by which NODE tells TO to stand at once
//	x NODE SAVE TERM VOTE COMMIT ENTRIES   crash: of the next Ready only the given hard state (SAVE=1) and the
//	                               first ENTRIES entries reach the disk, nothing is sent; then restart
//	a                              the state of all nodes
//
// A MAXMSG or MAXUNCOMMITTED of -1 is no limit. What an answer holds is in lockstep.py, which makes the same lines.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"

	"go.etcd.io/etcd/raft"
	pb "go.etcd.io/etcd/raft/raftpb"
)

type silent struct{}

func (silent) Debug(v ...interface{})                   {}
func (silent) Debugf(format string, v ...interface{})   {}
func (silent) Error(v ...interface{})                   {}
func (silent) Errorf(format string, v ...interface{})   {}
func (silent) Info(v ...interface{})                    {}
func (silent) Infof(format string, v ...interface{})    {}
func (silent) Warning(v ...interface{})                 {}
func (silent) Warningf(format string, v ...interface{}) {}
func (silent) Fatal(v ...interface{})                   { panic(fmt.Sprint(v...)) }
func (silent) Fatalf(format string, v ...interface{})   { panic(fmt.Sprintf(format, v...)) }
func (silent) Panic(v ...interface{})                   { panic(fmt.Sprint(v...)) }
func (silent) Panicf(format string, v ...interface{})   { panic(fmt.Sprintf(format, v...)) }

// disk is a MemoryStorage that also knows the voters.
type disk struct {
	*raft.MemoryStorage
	voters []uint64
}

func (d *disk) InitialState() (pb.HardState, pb.ConfState, error) {
	hs, _, err := d.MemoryStorage.InitialState()
	return hs, pb.ConfState{Voters: d.voters}, err
}

type run struct {
	config   raft.Config
	disks    []*disk
	nodes    []*raft.RawNode
	messages []pb.Message
}

var types = map[pb.MessageType]string{
	pb.MsgApp: "APP", pb.MsgAppResp: "APP_RESP", pb.MsgVote: "VOTE", pb.MsgVoteResp: "VOTE_RESP",
	pb.MsgPreVote: "PRE_VOTE", pb.MsgPreVoteResp: "PRE_VOTE_RESP", pb.MsgHeartbeat: "HEARTBEAT",
	pb.MsgHeartbeatResp: "HEARTBEAT_RESP", pb.MsgReadIndex: "READ_INDEX", pb.MsgReadIndexResp: "READ_INDEX_RESP",
	pb.MsgTimeoutNow: "TIMEOUT_NOW",
}

func messageText(b []byte, m *pb.Message) []byte {
	b = append(b, types[m.Type]...)
	for _, n := range [...]uint64{m.To, m.From, m.Term, m.LogTerm, m.Index, m.Commit, m.RejectHint} {
		b = append(b, ' ')
		b = strconv.AppendUint(b, n, 10)
	}
	if m.Reject {
		b = append(b, " no "...)
	} else {
		b = append(b, " yes "...)
	}
	b = append(b, m.Context...)
	if m.Type == pb.MsgReadIndex || m.Type == pb.MsgReadIndexResp {
		return append(b, m.Entries[0].Data...) // there the one entry carries the request's context
	}
	b = append(b, ' ')
	for i := range m.Entries {
		b = raft.AppendEntryText(b, &m.Entries[i])
	}
	return b
}

func (r *run) start(id int, applied uint64) {
	c := r.config
	c.ID = uint64(id + 1)
	c.Storage = r.disks[id]
	c.Applied = applied
	node, err := raft.NewRawNode(&c)
	if err != nil {
		panic(err)
	}
	r.nodes[id] = node
}

func (r *run) doReadys(out []byte, id int) []byte {
	node := r.nodes[id]
	for node.HasReady() {
		rd := node.Ready()
		out = append(out, "|ready"...)
		if rd.SoftState != nil {
			out = append(out, fmt.Sprintf(" soft %d %d", rd.SoftState.Lead, uint64(rd.SoftState.RaftState))...)
		}
		if !raft.IsEmptyHardState(rd.HardState) {
			out = append(out, fmt.Sprintf(" hard %d %d %d", rd.HardState.Term, rd.HardState.Vote, rd.HardState.Commit)...)
			r.disks[id].SetHardState(rd.HardState)
		}
		if rd.MustSync {
			out = append(out, " sync"...)
		}
		for _, s := range rd.ReadStates {
			out = append(out, fmt.Sprintf(" read %d %s", s.Index, s.RequestCtx)...)
		}
		if len(rd.Entries) > 0 {
			out = append(out, " write "...)
			for i := range rd.Entries {
				out = raft.AppendEntryText(out, &rd.Entries[i])
			}
			if err := r.disks[id].Append(rd.Entries); err != nil {
				panic(err)
			}
		}
		if len(rd.CommittedEntries) > 0 {
			out = append(out, " apply "...)
			for i := range rd.CommittedEntries {
				out = raft.AppendEntryText(out, &rd.CommittedEntries[i])
			}
		}
		texts := make([]string, len(rd.Messages))
		order := make([]int, len(rd.Messages))
		for i := range rd.Messages {
			texts[i] = string(messageText(nil, &rd.Messages[i]))
			order[i] = i
		}
		sort.Slice(order, func(a, b int) bool { return texts[order[a]] < texts[order[b]] })
		for _, i := range order {
			out = append(out, ';')
			out = append(out, texts[i]...)
			r.messages = append(r.messages, rd.Messages[i])
		}
		node.Advance(rd)
	}
	return out
}

func atoi(b []byte) int {
	n, err := strconv.Atoi(string(b))
	if err != nil {
		panic(err)
	}
	return n
}

func limit(b []byte) uint64 {
	if n := atoi(b); n >= 0 {
		return uint64(n)
	}
	return math.MaxUint64
}

func (r *run) begin(f [][]byte) {
	n := atoi(f[1])
	*r = run{disks: make([]*disk, n), nodes: make([]*raft.RawNode, n)}
	r.config = raft.Config{
		ElectionTick: atoi(f[2]), HeartbeatTick: atoi(f[3]), PreVote: f[4][0] == '1', CheckQuorum: f[5][0] == '1',
		MaxSizePerMsg: limit(f[6]), MaxCommittedSizePerReady: limit(f[6]), MaxInflightMsgs: atoi(f[7]),
		MaxUncommittedEntriesSize: limit(f[8]), Logger: silent{}, DisableProposalForwarding: true,
	}
	voters := make([]uint64, n)
	for i := range voters {
		voters[i] = uint64(i + 1)
	}
	for i := range r.nodes {
		r.disks[i] = &disk{raft.NewMemoryStorage(), voters}
		r.start(i, 0)
	}
}

func (r *run) crash(id int, f [][]byte) {
	var rd raft.Ready
	if r.nodes[id].HasReady() {
		rd = r.nodes[id].Ready()
	}
	applied := r.nodes[id].OracleApplied()
	if f[2][0] == '1' {
		r.disks[id].SetHardState(pb.HardState{Term: limit(f[3]), Vote: limit(f[4]), Commit: limit(f[5])})
	}
	if err := r.disks[id].Append(rd.Entries[:atoi(f[6])]); err != nil {
		panic(err)
	}
	r.start(id, applied)
}

func (r *run) command(line []byte) (out []byte) {
	defer func() {
		if p := recover(); p != nil {
			out = []byte(fmt.Sprint("panic ", p))
		}
	}()
	f := bytes.Fields(line)
	var err error
	id, hold := 0, false
	switch f[0][0] {
	case 'n':
		r.begin(f)
		return append(out, "run"...)
	case 'a':
		for _, node := range r.nodes {
			out = node.OracleState(out, messageText)
			out = append(out, '/')
		}
		return out
	case 'd':
		number := atoi(f[1])
		if number >= len(r.messages) {
			return append(out, "no such message"...)
		}
		m := r.messages[number]
		id, hold = int(m.To)-1, f[2][0] == '1'
		err = r.nodes[id].Step(m)
	default:
		id = atoi(f[1]) - 1
	}
	node := r.nodes[id]
	switch f[0][0] {
	case 't':
		node.OracleSetTimeout(atoi(f[2]))
		for i := atoi(f[3]); i > 0; i-- {
			node.Tick()
		}
		hold = f[4][0] == '1'
	case 'c':
		hold = f[2][0] == '1'
		err = node.Campaign()
	case 'p':
		hold = f[2][0] == '1'
		entries := make([]pb.Entry, len(f)-3)
		for i, data := range f[3:] {
			entries[i].Data = append([]byte(nil), data...)
		}
		err = node.Step(pb.Message{Type: pb.MsgProp, From: uint64(id + 1), Entries: entries})
		if err == raft.ErrStepLocalMsg {
			panic(err)
		}
	case 'r':
		hold = f[2][0] == '1'
		node.ReadIndex(append([]byte(nil), f[3]...))
	case 'o':
		r.messages = append(r.messages, pb.Message{
			Type: pb.MsgTimeoutNow, From: uint64(id + 1), To: limit(f[2]), Term: limit(f[3]),
		})
		hold = true
	case 'x':
		r.crash(id, f)
		node = r.nodes[id]
		hold = true
	}
	if err != nil {
		out = append(out, "refused "...)
	} else {
		out = append(out, "done "...)
	}
	if !hold {
		out = r.doReadys(out, id)
		out = append(out, '|')
	}
	return node.OracleState(out, messageText)
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<16)
	var r run
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			out.Flush()
			return
		}
		out.Write(r.command(line))
		out.WriteByte('\n')
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}
