/* One outbox item, two workers, one provider.

   A lease may end at any time, so no clock is trusted. A worker may die after
   its claim and after its send, and may be slow at every step. The provider
   knows an identifier until it forgets it, which it does only after the horizon
   and not while a request is in flight (flights are shorter than the margin).

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
#ifndef FOREIGN      /* somebody else may hold our identifier */
#define FOREIGN 0
#endif

mtype = { pending, leased, accepted, rejected, uncertain, quarantined };
mtype = { none, ok, dup, refused, throttled, indefinite, down, notsent };

#define ENDED (state == accepted || state == rejected || state == uncertain || state == quarantined)
#define KNOWN (foreign || (seen && !forgot && STABLE))
#define HOLDS (FENCE == 0 || (token == mine && state == leased))

mtype state = pending;
byte token = 0, attempts = 0, charges = 0;
byte crashes = 0, returns = 0;   /* faults are finite, or nothing ends */
byte inflight = 0;
bool unresolved = false, seen = false, late = false, forgot = false, foreign = false;
bool regress = false, asleep[2];

inline effect() {
  if
  :: KNOWN -> skip
  :: else -> charges++; seen = true; forgot = false
  fi
}

/* land moves the item, and notes a write over something that had ended */
inline land(to) { regress = regress || ENDED; state = to }

inline again() {
  if
  :: attempts < CAP -> land(pending)
  :: else -> land(uncertain)
  fi
}

inline giveback() { attempts = (attempts > 0 -> attempts - 1 : 0); returns++ }

proctype Worker(byte id) {
  byte mine = 0;
  mtype answer = none;
  do
  :: d_step { (state == pending || state == leased) && (attempts < CAP || CAPCLAIM == 0) &&
              !(HORIZON == 1 && late && (unresolved || (MARK == 1 && state == leased))) && token < 12 ->
       unresolved = unresolved || (MARK == 1 && state == leased);
       token++; attempts++; mine = token; state = leased; answer = none; asleep[id] = false }
     if
     :: d_step { crashes < 2 -> crashes++ } -> goto next             /* dies after the claim */
     :: d_step { returns < 2 -> answer = notsent } -> goto write     /* shutdown, breaker, no connection */
     :: d_step { returns < 2 && HOLDS -> giveback();                 /* T6: cannot be sent any more */
          land(((R1 == 1 && unresolved) -> uncertain : quarantined)) } -> goto next
     :: d_step { !(LEASECHECK == 1 && asleep[id]) -> inflight++ }
     :: d_step { LEASECHECK == 1 && asleep[id] -> answer = notsent } -> goto write
     fi;
     if
     :: d_step { !KNOWN -> effect(); answer = ok; inflight-- }
     :: d_step { KNOWN -> answer = dup; inflight-- }
     :: d_step { effect(); answer = indefinite; inflight-- }         /* 500 after the effect, reset */
     :: d_step { answer = indefinite; inflight-- }                   /* never arrived */
     :: d_step { returns < 2 -> effect(); answer = down; inflight-- } /* a proxy says 401 all the same */
     :: d_step { returns < 2 -> answer = down; inflight-- }
     :: d_step { !KNOWN -> answer = refused; inflight-- }
     :: d_step { answer = throttled; inflight-- }
     fi;
     if
     :: d_step { crashes < 2 -> crashes++ } -> goto next             /* dies after the send */
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
  :: d_step { (state == pending || state == leased) && CAPCLAIM == 1 && attempts >= CAP -> state = uncertain; token++ }
  :: d_step { (state == pending || state == leased) && HORIZON == 1 && late &&
              (unresolved || (MARK == 1 && state == leased)) -> unresolved = true; state = uncertain; token++ }
  :: ENDED -> break
  od
}

/* Time: the horizon passes, and later the provider forgets. */
proctype Time() {
  if
  :: d_step { (seen || inflight > 0 || unresolved || state == leased) -> late = true; asleep[0] = true; asleep[1] = true }
  :: ENDED -> goto over
  fi;
  if
  :: d_step { seen && inflight == 0 -> forgot = true }
  :: ENDED -> skip
  fi;
over: skip
}

init {
  atomic {
    if
    :: FOREIGN == 1 -> foreign = true
    :: true
    fi;
    run Worker(0); run Worker(1); run Time()
  }
}

ltl once    { [] (charges <= 1) }
ltl refusal { [] !(state == rejected && charges > 0) }
ltl set_by  { [] !(state == quarantined && charges > 0) }
ltl fact    { [] !(state == accepted && charges == 0 && !foreign) }
ltl blind   { [] !(state == accepted && charges == 0 && !unresolved) }
ltl fence   { [] !regress }
ltl cap     { [] (attempts <= CAP) }
ltl live    { <> ENDED }
