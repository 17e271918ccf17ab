------------------------------ MODULE Ownership ------------------------------
(* Several hosts on one database that want to make one mutation: every order in which things can happen.
   docs/internals/ownership.md explains the protocol. ownership.py is the same model in Python, step by step under
   the same names; `make model` compares how many states each of them finds.

   A host that takes no step for any number of ticks is a frozen host. A message that is never written or answered is
   a cut in that direction. So neither needs a step of its own. Every count of time is what is left of it, so time has
   no end. Fault is "" or the name of one planted fault. *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Hosts, NoHost, Attempts, Lease, Margin, Deadline, Settle, PersonErrs, ClockJumps, Fault

VARIABLES
  host,   \* each process: alive, owns, its own count of its lease, its heartbeat, its COMMIT that begins an attempt
  call,   \* each attempt: its row in the ledger, the call in the sender's process, the request, its effect outside
  lease,  \* what is left of the owner's lease by the database's clock
  stray   \* a host that is not the owner has changed the workflow
vars == <<host, call, lease, stray>>

Numbers == 1..Attempts
Alike == Permutations(Hosts)
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Less(n) == Max(n - 1, 0)

Open == {"to_send", "checked", "waiting"}
Told == {"answered", "refused", "unknown"}
Over == Told \cup {"ended", "dead"}
Doubt == {"needs_reconcile", "question"}
RowOf(at) == CASE at = "answered" -> "applied" [] at = "refused" -> "failed" [] at = "unknown" -> "needs_reconcile"

NewHost == [alive |-> TRUE, owns |-> "no", lease |-> 0, beat |-> "", age |-> 0, ask |-> -1]
NoCall == [status |-> "none", sender |-> NoHost, current |-> FALSE, at |-> "none", deadline |-> 0, net |-> "none",
           hidden |-> 0, mark |-> "", settle |-> 0, wrong |-> FALSE]

Init == /\ host = [h \in Hosts |-> NewHost] /\ call = [a \in Numbers |-> NoCall] /\ lease = 0 /\ stray = FALSE

\* Without what no longer matters, so that states which lead to the same are one.
Canonical(c) ==
  LET d == IF c.at \in Over THEN [c EXCEPT !.deadline = 0] ELSE c IN
  IF c.at \notin {"ended", "dead"} THEN d
  ELSE IF c.net # "flying" /\ c.status \in {"failed", "applied", "skipped"}
  THEN [NoCall EXCEPT !.status = c.status, !.at = "ended", !.net = c.net, !.mark = "unknown", !.wrong = c.wrong]
  ELSE [d EXCEPT !.sender = NoHost]

Put(a, c) == call' = [call EXCEPT ![a] = Canonical(c)]
OnlyHost(h, changed) == host' = [host EXCEPT ![h] = changed] /\ UNCHANGED <<call, lease, stray>>
OnlyCall(a, changed) == Put(a, changed) /\ UNCHANGED <<host, lease, stray>>
NoBeat(h) == [h EXCEPT !.beat = "", !.age = 0]

Right(c) == host[c.sender].lease > Margin /\ c.deadline > 0
CanCome(c) == c.net = "flying" \/ c.at = "checked" \/ (c.at = "to_send" /\ Right(c))
Finished == /\ \E a \in Numbers : call[a].status \in {"applied", "skipped"}
            /\ \A a \in Numbers : ~CanCome(call[a])

-----------------------------------------------------------------------------
\* Hosts: leases and ownership

Restart(h) == /\ ~host[h].alive /\ host[h].ask < 0 /\ ~(host[h].owns = "current" /\ lease > 0)
              /\ OnlyHost(h, [host[h] EXCEPT !.alive = TRUE, !.owns = "no"])

\* The process is gone, and with it what it knew; a COMMIT that it sent may still be written.
Crash(h) == /\ host[h].alive
            /\ host' = [host EXCEPT ![h] = [NoBeat(@) EXCEPT !.alive = FALSE, !.lease = 0]]
            /\ call' = [a \in Numbers |-> IF call[a].sender = h /\ call[a].at \in Open \cup Told
                                          THEN Canonical([call[a] EXCEPT !.at = "dead"]) ELSE call[a]]
            /\ UNCHANGED <<lease, stray>>

AskBeat(h) == /\ host[h].alive /\ host[h].owns = "current" /\ host[h].beat = "" /\ host[h].lease < Lease
              /\ OnlyHost(h, [host[h] EXCEPT !.beat = "asked"])
BeatWritten(h) == /\ host[h].beat = "asked" /\ host[h].owns = "current" /\ lease > 0
                  /\ host' = [host EXCEPT ![h].beat = "written"] /\ lease' = Lease /\ UNCHANGED <<call, stray>>
BeatAnswered(h) == /\ host[h].beat = "written"
                   /\ LET age == IF Fault = "lease_from_answer" THEN 0 ELSE host[h].age IN
                      OnlyHost(h, [NoBeat(host[h]) EXCEPT !.lease = Max(@, Lease - age)])
BeatLost(h) == host[h].beat # "" /\ OnlyHost(h, NoBeat(host[h]))

\* Owner and epoch + 1, the open run adopted, in_flight to needs_reconcile: one transaction.
Claim(h) == /\ host[h].alive /\ host[h].owns = "no"
            /\ ~(lease > 0 /\ \E g \in Hosts : host[g].owns = "current")
            /\ host' = [g \in Hosts |-> IF g = h THEN [host[g] EXCEPT !.owns = "current", !.lease = Lease]
                                        ELSE IF host[g].owns = "current" THEN [NoBeat(host[g]) EXCEPT !.owns = "stale"]
                                        ELSE host[g]]
            /\ call' = [a \in Numbers |->
                 [call[a] EXCEPT !.current = FALSE,
                                 !.status = IF @ = "in_flight" /\ Fault # "claim_leaves_in_flight"
                                            THEN "needs_reconcile" ELSE @]]
            /\ lease' = Lease /\ UNCHANGED stray

LearnLost(h) == /\ host[h].alive /\ host[h].ask < 0
                /\ host[h].owns = "stale" \/ (host[h].owns = "current" /\ lease = 0)
                /\ OnlyHost(h, [NoBeat(host[h]) EXCEPT !.owns = "no", !.lease = 0])

HandOver(h) == /\ host[h].alive /\ host[h].ask < 0 /\ host[h].owns = "current"
               /\ \A a \in Numbers : ~(call[a].current /\ call[a].at \in Open \cup Told)
               /\ host' = [host EXCEPT ![h] = [NoBeat(@) EXCEPT !.owns = "no", !.lease = 0]]
               /\ lease' = 0 /\ UNCHANGED <<call, stray>>

-----------------------------------------------------------------------------
\* Hosts: beginning an attempt, sending

\* The attempt that may begin now: every earlier one failed, none is open.
IsNext(a) == /\ call[a].status = "none" /\ call[a].at = "none"
             /\ \A b \in 1..(a - 1) : call[b].status = "failed"

AskBegin(h) == /\ host[h].alive /\ host[h].ask < 0 /\ host[h].owns = "current" /\ host[h].lease > Margin
               /\ \E a \in Numbers : IsNext(a)
               /\ OnlyHost(h, [host[h] EXCEPT !.ask = IF Fault = "deadline_outside" THEN Lease + 1
                                                      ELSE Min(Deadline, host[h].lease - Margin)])

\* Refused, or lost: the host reads again under the workflow's lock, and then it can never be written.
BeginGone(h) == host[h].ask >= 0 /\ OnlyHost(h, [host[h] EXCEPT !.ask = -1])

Begun(h) == [NoCall EXCEPT !.status = "in_flight", !.sender = h, !.current = (host[h].owns = "current"),
                           !.at = IF host[h].alive THEN "to_send" ELSE "dead", !.deadline = host[h].ask,
                           !.settle = Settle]
BeginWritten(h, a) == /\ host[h].ask >= 0 /\ IsNext(a) /\ (host[h].owns = "current" \/ Fault = "no_fence")
                      /\ Put(a, Begun(h)) /\ host' = [host EXCEPT ![h].ask = -1]
                      /\ stray' = (stray \/ host[h].owns # "current") /\ UNCHANGED lease
BeginBelieved(h, a) == /\ Fault = "commit_taken_for_done" /\ host[h].ask >= 0 /\ host[h].alive /\ IsNext(a)
                       /\ Put(a, [Begun(h) EXCEPT !.status = "none"])
                       /\ host' = [host EXCEPT ![h].ask = -1] /\ UNCHANGED <<lease, stray>>

Check(a) == /\ call[a].at = "to_send" /\ Right(call[a]) /\ OnlyCall(a, [call[a] EXCEPT !.at = "checked"])
NotSent(a) == /\ call[a].at = "to_send" /\ ~Right(call[a]) /\ OnlyCall(a, [call[a] EXCEPT !.at = "refused"])
Send(a) == /\ call[a].at = "checked" /\ OnlyCall(a, [call[a] EXCEPT !.at = "waiting", !.net = "flying"])
GiveUp(a) == /\ call[a].at = "waiting" /\ OnlyCall(a, [call[a] EXCEPT !.at = "unknown"])
Answer(a) == /\ call[a].at = "waiting" /\ call[a].net = "landed" /\ OnlyCall(a, [call[a] EXCEPT !.at = "answered"])
Refuse(a) == /\ call[a].at = "waiting" /\ call[a].net = "flying"
             /\ OnlyCall(a, [call[a] EXCEPT !.at = "refused", !.net = "lost"])
Land(a) == call[a].net = "flying" /\ OnlyCall(a, [call[a] EXCEPT !.net = "landed", !.hidden = Settle])
Lose(a) == call[a].net = "flying" /\ OnlyCall(a, [call[a] EXCEPT !.net = "lost"])

\* The sender records how its call ended; if it is fenced, only the mark.
Ended(a) == [call[a] EXCEPT !.at = "ended", !.mark = IF @ = "" THEN call[a].at ELSE @]
Writes(a) == call[a].status = "in_flight" /\ (call[a].current \/ Fault = "no_fence")
Record(a) == /\ call[a].at \in Told /\ host[call[a].sender].alive /\ Writes(a)
             /\ Put(a, [Ended(a) EXCEPT !.status = RowOf(call[a].at)])
             /\ stray' = (stray \/ ~call[a].current) /\ UNCHANGED <<host, lease>>
LateMark(a) == /\ call[a].at \in Told /\ host[call[a].sender].alive /\ ~Writes(a) /\ OnlyCall(a, Ended(a))
ProofOfDeath(a) == /\ call[a].at = "dead" /\ call[a].mark = "" /\ call[a].status \in Doubt
                   /\ OnlyCall(a, [call[a] EXCEPT !.mark = "dead"])

-----------------------------------------------------------------------------
\* After doubt

\* A look-up that finds nothing proves that nothing can come any more.
Closed(c) == IF Fault = "no_settle" THEN c.mark # ""
             ELSE (c.mark # "" \/ (Fault = "lease_closes" /\ ~c.current)) /\ c.settle = 0
\* A look-up may find nothing.
Absent(c) == c.net # "landed" \/ c.hidden > 0
Reconciles(h, a) == host[h].alive /\ host[h].owns = "current" /\ call[a].status = "needs_reconcile"

Found(h, a) == /\ Reconciles(h, a) /\ (call[a].net = "landed" \/ call[a].mark = "answered")
               /\ OnlyCall(a, [call[a] EXCEPT !.status = "applied"])
ProvenAbsent(h, a) == /\ Reconciles(h, a) /\ (call[a].mark = "refused" \/ (Absent(call[a]) /\ Closed(call[a])))
                      /\ OnlyCall(a, [call[a] EXCEPT !.status = "failed"])
MarkOfAnother(h, a) == /\ Fault = "marks_others" /\ Reconciles(h, a) /\ call[a].mark = "" /\ Absent(call[a])
                       /\ OnlyCall(a, [call[a] EXCEPT !.mark = "unknown"])
AskPerson(h, a) == Reconciles(h, a) /\ OnlyCall(a, [call[a] EXCEPT !.status = "question"])

TryAgain(a) == call[a].status = "question" /\ OnlyCall(a, [call[a] EXCEPT !.status = "needs_reconcile"])
Skip(a) == call[a].status = "question" /\ OnlyCall(a, [call[a] EXCEPT !.status = "skipped"])
DidNotHappen(a) == /\ call[a].status = "question" /\ call[a].net # "landed"
                   /\ (Closed(call[a]) \/ Fault = "offered_early")
                   /\ OnlyCall(a, [call[a] EXCEPT !.status = "failed"])
DidNotHappenWrongly(a) == /\ PersonErrs /\ call[a].status = "question" /\ call[a].net = "landed" /\ Closed(call[a])
                          /\ OnlyCall(a, [call[a] EXCEPT !.status = "failed", !.wrong = TRUE])
HostDeadWrongly(a) == /\ PersonErrs /\ call[a].status \in Doubt /\ call[a].mark = "" /\ call[a].at \in Open
                      /\ OnlyCall(a, [call[a] EXCEPT !.mark = "dead", !.wrong = TRUE])

-----------------------------------------------------------------------------
\* Time

JumpAhead == ClockJumps /\ lease > 0 /\ lease' = 0 /\ UNCHANGED <<host, call, stray>>

Older(c) ==
  LET counts == c.mark # "" \/ (Fault = "lease_closes" /\ ~c.current /\ c.status \in Doubt) IN
  Canonical([c EXCEPT !.deadline = Less(@), !.hidden = Less(@),
                      !.settle = IF counts THEN Less(@) ELSE @])
\* Once its call is over, a request lands or is lost before the settle time can pass.
Tick == /\ \A a \in Numbers : ~(call[a].net = "flying" /\ call[a].at \in Over)
        /\ host' = [h \in Hosts |-> [host[h] EXCEPT !.lease = Less(@), !.ask = IF @ > 0 THEN @ - 1 ELSE @,
                                                    !.age = IF host[h].beat = "" THEN 0 ELSE Min(@ + 1, Lease)]]
        /\ call' = [a \in Numbers |-> Older(call[a])] /\ lease' = Less(lease) /\ UNCHANGED stray

Next ==
  /\ ~Finished
  /\ \/ \E h \in Hosts : \/ Restart(h) \/ Crash(h) \/ AskBeat(h) \/ BeatWritten(h) \/ BeatAnswered(h) \/ BeatLost(h)
                         \/ Claim(h) \/ LearnLost(h) \/ HandOver(h) \/ AskBegin(h) \/ BeginGone(h)
     \/ \E h \in Hosts, a \in Numbers : \/ BeginWritten(h, a) \/ BeginBelieved(h, a) \/ Found(h, a)
                                        \/ ProvenAbsent(h, a) \/ MarkOfAnother(h, a) \/ AskPerson(h, a)
     \/ \E a \in Numbers : \/ Check(a) \/ NotSent(a) \/ Send(a) \/ GiveUp(a) \/ Answer(a) \/ Refuse(a) \/ Land(a)
                           \/ Lose(a) \/ Record(a) \/ LateMark(a) \/ ProofOfDeath(a) \/ TryAgain(a) \/ Skip(a)
                           \/ DidNotHappen(a) \/ DidNotHappenWrongly(a) \/ HostDeadWrongly(a)
     \/ JumpAhead \/ Tick

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* What must hold

LeaseOf(current) == IF current THEN lease ELSE 0
Count(Is(_)) == Cardinality({a \in Numbers : Is(call[a])})
Landed(c) == c.net = "landed"
Wrong(c) == c.wrong

AtMostOneEffect == Count(Landed) <= 1 + Count(Wrong)
FailedIsProof == \A a \in Numbers : call[a].status = "failed" /\ ~call[a].wrong
                                    => call[a].net # "landed" /\ ~CanCome(call[a])
AppliedIsTrue == \A a \in Numbers : call[a].status = "applied" => call[a].net = "landed"
IntentFirst == \A a \in Numbers : call[a].net # "none" => call[a].status # "none"
ClosedMeansOver == \A a \in Numbers : call[a].mark # "" /\ ~call[a].wrong => call[a].at \in Over
OwnerWrites == ~stray
InFlightIsTheOwners == \A a \in Numbers : call[a].status = "in_flight" => call[a].current
OwnCountIsShorter == \A h \in Hosts : host[h].lease <= LeaseOf(host[h].owns = "current")
DeadlineInsideLease == \A a \in Numbers : call[a].deadline <= LeaseOf(call[a].current)
=============================================================================
