"""Appends: what a leader sends, what a follower answers, what the leader learns."""

from __future__ import annotations

from mesh.core.raft.errors import CompactedError
from mesh.core.raft.heartbeats import Heartbeats
from mesh.core.raft.message import Message, MsgType
from mesh.core.raft.progress import ProgressState


class Replication(Heartbeats):
    # -- leader: sending

    def broadcast_append(self) -> None:
        """Tell everyone about new entries or a new commit index, now or once per Ready."""
        if self.config.append_on == "ready":
            self.append_due = True
            return
        for to in self.peers:
            self.send_append(to)

    def flush_appends(self) -> None:
        """Make the appends that were put off until the Ready: as many full messages as the windows take."""
        self.append_due = False
        for to in self.peers:
            progress = self.tracker.progress[to]
            # Without entries only a commit index that the member was not told yet is worth a message.
            if self.send_append(to, even_empty=progress.sent_commit < self.log.committed):
                while progress.state is ProgressState.REPLICATE and self.send_append(to, even_empty=False):
                    pass

    def send_append(self, to: int, even_empty: bool = True) -> bool:
        """Send the entries from next on, within the message limit. False if nothing was sent."""
        progress = self.tracker.progress[to]
        if progress.paused():
            return False
        log = self.log
        previous = progress.next - 1
        last = log.last_index()
        if previous >= last and not even_empty:
            return False
        try:
            previous_term = log.term(previous)
            entries = log.slice(previous + 1, last + 1, self.config.max_msg_bytes)
        except CompactedError:
            return self.send_snapshot(to)
        self.send(
            Message(
                MsgType.APP, to, log_term=previous_term, index=previous, entries=entries, commit=log.committed
            )
        )  # fmt: skip
        progress.sent_commit = log.committed
        if entries:
            if progress.state is ProgressState.REPLICATE:
                progress.next = entries[-1].index + 1
                progress.inflights.append(entries[-1].index)
            else:
                progress.probe_sent = True
        return True

    def send_snapshot(self, to: int) -> bool:
        """The member needs entries that are compacted away. Snapshots are not part of the core yet."""
        self.tracker.progress[to].become(ProgressState.SNAPSHOT)
        return False

    # -- follower

    def handle_append(self, m: Message) -> None:
        log = self.log
        if m.index < log.committed:
            # An old or repeated append; what is committed agrees with every leader anyway.
            self.send(Message(MsgType.APP_RESP, m.from_, index=log.committed))
            return
        last = log.maybe_append(m.index, m.log_term, m.commit, m.entries)
        if last is not None:
            self.send(Message(MsgType.APP_RESP, m.from_, index=last))
            return
        hint, hint_term = log.last_index(), 0
        if self.config.conflict_hints == "by_term":
            hint, hint_term = log.conflict_point(min(m.index, hint), m.log_term)
        self.send(Message(MsgType.APP_RESP, m.from_, index=m.index, reject=True, reject_hint=hint, log_term=hint_term))

    # -- leader: learning

    def handle_append_resp(self, m: Message) -> None:
        progress = self.tracker.progress[m.from_]
        progress.recent_active = True
        if m.reject:
            self._handle_rejection(m)
            return
        was_paused = progress.paused()
        probing = progress.state is ProgressState.PROBE
        if not progress.maybe_update(m.index):
            equal = probing and m.index == progress.match and self.config.probe_exit == "on_match"
            if not equal:
                return
        if probing:
            progress.become(ProgressState.REPLICATE)
        elif progress.state is ProgressState.REPLICATE:
            progress.free_to(m.index)
        elif m.index >= self.log.storage.first_index() - 1:
            progress.become(ProgressState.REPLICATE)  # it can be served from the log again
        if self.maybe_commit():
            self.release_early_reads()
            self.broadcast_append()
        elif was_paused:
            self.send_append(m.from_)  # it may have missed the commit index meanwhile
        while self.send_append(m.from_, even_empty=False):
            pass

    def _handle_rejection(self, m: Message) -> None:
        progress = self.tracker.progress[m.from_]
        hint = m.reject_hint
        if m.log_term:
            # The member's log up to hint has terms <= log_term; ours agrees with it at most where ours does too.
            hint, _ = self.log.conflict_point(min(hint, m.index), m.log_term)
        if progress.maybe_decrease_to(m.index, hint):
            if progress.state is ProgressState.REPLICATE:
                progress.become(ProgressState.PROBE)
            self.send_append(m.from_)

    def handle_heartbeat_resp(self, m: Message) -> None:
        progress = self.tracker.progress[m.from_]
        progress.recent_active = True
        progress.probe_sent = False
        if progress.state is ProgressState.REPLICATE and progress.paused():
            # The answers to a full window may all be lost; one free slot keeps it moving.
            progress.free_first()
        if progress.match < self.log.last_index():
            self.send_append(m.from_)
        if m.context:
            self.answer(self.reads.ack(m.from_, m.context))
