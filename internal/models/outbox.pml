/* One fact, two workers, one provider, and people who settle what is stuck.

   A lease may end at any time, so no clock is trusted. A worker may die after
   its claim and after its send, and may be slow at every step. The provider
   knows an identifier until it forgets it, which it does only after the horizon
   and not while a request is in flight (flights are shorter than the margin).

   A person reads the provider's books and acts on that later: resolves what is
   uncertain (T8), requeues what is quarantined (T9), or has the item made anew
   under another mapping, which is another identifier for the same fact.

   Each guard below can be switched off; scripts/spin.sh checks that every
   property holds with all of them, and that some property fails without each. */
#ifndef CAP
#define CAP 3
#endif
#ifndef FENCE        /* a write needs the claim's token and the state leased */
#define FENCE 1
#endif
#ifndef R1           /* nothing is refused or quarantined while an attempt is open */
#define R1 1
#endif
#ifndef MARK         /* a re-claimed lease leaves the item unresolved */
#define MARK 1
#endif
#ifndef MARKEND      /* also if the claim then hands it to people */
#define MARKEND 1
#endif
#ifndef HONEST       /* an indefinite answer is not a refusal */
#define HONEST 1
#endif
#ifndef STABLE       /* the identifier is the same at every attempt */
#define STABLE 1
#endif
#ifndef CAPCLAIM     /* attempts are counted and tested at the claim */
#define CAPCLAIM 1
#endif
#ifndef HORIZON      /* what is unresolved beyond the horizon is not claimed */
#define HORIZON 1
#endif
#ifndef LEASECHECK   /* a worker that slept through its lease does not send */
#define LEASECHECK 1
#endif
#ifndef DUPRULE      /* a duplicate answer is ours only if an attempt is open */
#define DUPRULE 1
#endif
#ifndef ACTS         /* how often people act */
#define ACTS 0
#endif
#ifndef PEOPLE
#define PEOPLE 1
#endif
#ifndef FAULTS       /* how often workers die, and how often nothing can be sent */
#define FAULTS 2
#endif
#ifndef R2           /* another identifier only where nothing was taken or is open */
#define R2 1
#endif
#ifndef R3           /* people wait until nothing can be in flight */
#define R3 1
#endif
#ifndef T8TOKEN      /* they act only on the item as they saw it */
#define T8TOKEN 1
#endif
#ifndef EVIDENCE     /* what they resolve to is what the books say */
#define EVIDENCE 1
#endif
#ifndef FOREIGN      /* somebody else may hold our identifier */
#define FOREIGN 0
#endif

mtype = { pending, leased, accepted, rejected, uncertain, quarantined };
mtype = { none, ok, dup, refused, throttled, indefinite, down, notsent };

#define ENDED (state == accepted || state == rejected || state == uncertain || state == quarantined)
#define FINAL (state == accepted || state == rejected)
#define DONE  (ENDED && (FINAL || acts >= ACTS))
#define KNOWN(i) (foreign || (seen[i] && !forgot[i] && STABLE))
#define HOLDS (FENCE == 0 || (token == mine && state == leased))

mtype state = pending;
byte token = 0, attempts = 0, charges = 0;
byte crashes = 0, returns = 0;   /* faults are finite, or nothing ends */
byte inflight = 0, budget = CAP, acts = 0;
bit  name = 0;                   /* the identifier of the row that may be sent */
bool seen[2], forgot[2], unresolved = false, late = false, foreign = false;
bool regress = false, asleep[2];

inline effect() {
  if
  :: KNOWN(sent) -> skip
  :: else -> charges++; seen[sent] = true; forgot[sent] = false
  fi
}

/* land moves the item, and notes a write over something that had ended */
inline land(to) { regress = regress || ENDED; state = to }

inline again() {
  if
  :: attempts < budget -> land(pending)
  :: else -> land(uncertain)
  fi
}

inline giveback() { attempts = (attempts > 0 -> attempts - 1 : 0); returns++ }

proctype Worker(byte id) {
  byte mine = 0;
  bit sent = 0;
  mtype answer = none;
  do
  :: d_step { (state == pending || state == leased) && (attempts < budget || CAPCLAIM == 0) &&
              !(HORIZON == 1 && late && (unresolved || (MARK == 1 && state == leased))) && token < 12 ->
       unresolved = unresolved || (MARK == 1 && state == leased);
       token++; attempts++; mine = token; sent = name; state = leased; answer = none; asleep[id] = false }
     if
     :: d_step { crashes < FAULTS -> crashes++ } -> goto next             /* dies after the claim */
     :: d_step { returns < FAULTS -> answer = notsent } -> goto write     /* shutdown, breaker, no connection */
     :: d_step { returns < FAULTS && HOLDS -> giveback();                 /* T6: cannot be sent any more */
          land(((R1 == 1 && unresolved) -> uncertain : quarantined)) } -> goto next
     :: d_step { !(LEASECHECK == 1 && asleep[id]) -> inflight++ }
     :: d_step { LEASECHECK == 1 && asleep[id] -> answer = notsent } -> goto write
     fi;
     if
     :: d_step { !KNOWN(sent) -> effect(); answer = ok; inflight-- }
     :: d_step { KNOWN(sent) -> answer = dup; inflight-- }
     :: d_step { effect(); answer = indefinite; inflight-- }         /* 500 after the effect, reset */
     :: d_step { answer = indefinite; inflight-- }                   /* never arrived */
     :: d_step { returns < FAULTS -> effect(); answer = down; inflight-- } /* a proxy says 401 all the same */
     :: d_step { returns < FAULTS -> answer = down; inflight-- }
     :: d_step { !KNOWN(sent) -> answer = refused; inflight-- }
     :: d_step { answer = throttled; inflight-- }
     fi;
     if
     :: d_step { crashes < FAULTS -> crashes++ } -> goto next             /* dies after the send */
     :: true
     fi;
write:
     if
     :: d_step { HOLDS && answer == ok -> state = accepted }
     :: d_step { HOLDS && answer == dup -> state = ((unresolved || DUPRULE == 0) -> accepted : uncertain) }
     :: d_step { HOLDS && answer == refused -> land(((R1 == 1 && unresolved) -> uncertain : rejected)) }
     :: d_step { HOLDS && answer == refused -> land(((R1 == 1 && unresolved) -> uncertain : quarantined)) } /* mendable */
     :: d_step { HOLDS && answer == indefinite && HONEST == 1 -> unresolved = true; again() }
     :: d_step { HOLDS && answer == indefinite && HONEST == 0 -> land(rejected) }
     :: d_step { HOLDS && answer == down -> unresolved = true; giveback(); land(pending) }
     :: d_step { HOLDS && answer == throttled -> again() }
     :: d_step { HOLDS && answer == notsent -> giveback(); land(pending) }
     :: !(HOLDS) -> skip                                              /* zero rows */
     fi;
next: skip
  :: d_step { (state == pending || state == leased) && CAPCLAIM == 1 && attempts >= budget ->
       unresolved = unresolved || (MARK == 1 && MARKEND == 1 && state == leased); state = uncertain; token++ }
  :: d_step { (state == pending || state == leased) && HORIZON == 1 && late &&
              (unresolved || (MARK == 1 && state == leased)) -> unresolved = true; state = uncertain; token++ }
  :: DONE -> break
  od
}

/* A person. What was read of the item and of the books may be old when it is
   written; the quiet time is tested at both. Nothing is in flight after it, and
   who claimed before it has slept through its lease. */
#define QUIET (R3 == 0 || inflight == 0)
#define ASSEEN (T8TOKEN == 0 || token == looked)
proctype Operator() {
  byte looked = 0;
  bool taken = false;
  do
  :: d_step { acts < ACTS && state == uncertain && QUIET ->
       acts++; looked = token; taken = (charges > 0);
       if
       :: R3 == 1 -> asleep[0] = true; asleep[1] = true
       :: else
       fi }
     if
     :: d_step { state == uncertain && ASSEEN && QUIET && taken -> state = accepted }
     :: d_step { state == uncertain && ASSEEN && QUIET && (!taken || EVIDENCE == 0) -> state = rejected }
     :: d_step { state == uncertain && ASSEEN && QUIET && !late -> state = pending; budget = attempts + 1 }
     :: !(state == uncertain && ASSEEN && QUIET) -> skip              /* zero rows */
     :: d_step { R2 == 0 && state == uncertain && name == 0 -> name = 1; token++; attempts = 0; unresolved = false; state = pending }
     fi
  :: d_step { acts < ACTS && state == quarantined -> acts++; looked = token }
     if
     :: d_step { state == quarantined && ASSEEN -> state = pending; budget = attempts + 1 }
     :: d_step { state == quarantined && ASSEEN && !unresolved && name == 0 ->
          name = 1; token++; attempts = 0; state = pending }
     :: d_step { state == quarantined && ASSEEN -> state = rejected }  /* abandoned */
     :: !(state == quarantined && ASSEEN) -> skip
     fi
  :: DONE -> break
  od
}

/* Time: the horizon passes, and later the provider forgets. */
proctype Time() {
  if
  :: d_step { (seen[0] || seen[1] || inflight > 0 || unresolved || state == leased) -> late = true; asleep[0] = true; asleep[1] = true }
  :: DONE -> goto over
  fi;
  if
  :: d_step { (seen[0] || seen[1]) && inflight == 0 -> forgot[0] = true; forgot[1] = true }
  :: DONE -> skip
  fi;
over: skip
}

init {
  atomic {
    if
    :: FOREIGN == 1 -> foreign = true
    :: true
    fi;
    run Worker(0); run Worker(1); run Time();
    if
    :: ACTS > 0 && PEOPLE == 1 -> run Operator()
    :: ACTS > 0 && PEOPLE == 2 -> run Operator(); run Operator()
    :: ACTS == 0
    fi
  }
}

#define ONCE    (charges <= 1)
#define REFUSAL !(state == rejected && charges > 0)
#define SET_BY  !(state == quarantined && charges > 0)
#define FACT    !(state == accepted && charges == 0 && !foreign)
#define BLIND   !(state == accepted && charges == 0 && !unresolved)
#define LIMIT   (attempts <= budget)

ltl safe    { [] (ONCE && REFUSAL && SET_BY && FACT && BLIND && LIMIT && !regress) }
ltl held    { [] (ONCE && REFUSAL && SET_BY && BLIND && LIMIT && !regress) }
ltl once    { [] ONCE }
ltl refusal { [] REFUSAL }
ltl set_by  { [] SET_BY }
ltl blind   { [] BLIND }
ltl fence   { [] !regress }
ltl cap     { [] LIMIT }
ltl live    { <> [] ENDED }
