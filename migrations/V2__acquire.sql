-- call_budget_acquire: the central function. One call, one short transaction, one answer.
--
-- Promise
--   Any two slots of a budget are at least `cost * interval` apart in the store's time, whoever asked for them, also over
--   restarts, failovers and a clock that steps back. A slot starts at most `lookahead` after the call.
--
-- Inputs
--   budget_name, class_name   what to call under. The budget name '' is nobody's: it runs every statement on no rows,
--                             takes no lock, and answers 'unknown_budget'. A new connection warms itself with it.
--   lane_id                   the caller's own random id >= 0, kept for its lifetime: repeating a call whose answer was
--                             lost changes nothing and leaves nobody behind in the queue.
--   costs                     of the callers that wait in this lane, in order; one caller is {1}. At most 100,000.
--   patience_us               how long the first of them would still wait: 0 to 1 day.
--   nonce                     echoed, so that nobody takes somebody else's answer for his own.
--
-- Answer (one row of built-in types; durations, never dates: caller and store share no clock)
--   waits_us   one entry a granted slot, for the first callers in order. The caller's clock noted t_req before the call
--              and t_resp after it: a call may leave in [t_resp + wait, t_req + wait + send_window_us], never outside.
--   retry_us   come back at t_req + retry (an appointment: at most 5 s), or, with a reason, the earliest that could help.
--   reason     NULL, or why nothing was granted and nothing booked: 'patience', 'paused', 'cost_out_of_range',
--              'unknown_budget', 'unknown_class'.
--   store_us   this server's clock, for comparison with itself only. fences and timeline only ever grow.
--
--   A grant counts ONLY when this call was a transaction of its own and the commit was acknowledged.
--
-- Lock order   the budget's row, then its classes by name, then waiters: only ever under the budget's row.
-- Clock rule   the lock first, then clock_timestamp() once. (now() and statement_timestamp() are older than the wait for
--              the lock: slots reckoned from them would lie in the past.)
-- SQLSTATEs    CB001 an argument is out of range; CB002 the transaction is not READ COMMITTED (its snapshot would be older
--              than the lock). Others are PostgreSQL's own. None of them is ever a grant.

-- The budget's row as the functions below pass it about, in built-in types: a domain's rule would be checked again at every
-- hand-over.
CREATE VIEW call_budget.call_budget_state AS
SELECT b.name::text, b.interval_us::bigint, b.lookahead_us::bigint, b.send_window_us::bigint, b.max_cost::integer,
       b.version, b.paused, b.blocked_until_us, b.fenced_until_us, b.fences
  FROM call_budget.call_budget AS b;

CREATE TYPE call_budget.call_budget_answer AS (
    contract       integer,
    nonce          bigint,
    waits_us       bigint[],
    retry_us       bigint,
    reason         text,
    interval_us    bigint,
    lookahead_us   bigint,
    send_window_us bigint,
    max_cost       integer,
    version        bigint,
    fences         bigint,
    timeline       bigint,
    store_us       bigint
);

-- A class with somebody alive in its queue.
CREATE TYPE call_budget.call_budget_head AS (
    class        text,
    priority     integer,
    floor_ppm    integer,
    due_us       bigint,
    last_slot_us bigint,
    earliest_us  bigint,
    units        bigint
);

-- Who goes first; the smaller goes first. A class whose floor is due (earliest due first), else the smaller priority
-- number, else the class served least recently.
CREATE FUNCTION call_budget.call_budget_rank(floor_ppm integer, due_us bigint, priority integer, last_slot_us bigint, at_us bigint)
RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN floor_ppm > 0 AND due_us <= at_us THEN ARRAY[0, due_us, 0] ELSE ARRAY[1, priority, last_slot_us] END
$$;

-- The timeline of this server, as in the names of its WAL files. (pg_control_checkpoint() lags after a promotion.)
CREATE FUNCTION call_budget.call_budget_timeline() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint
$$;

-- The budgets of which nothing was forgotten since their last fence: the marker is there and tells of this very server.
CREATE VIEW call_budget.call_budget_remembered AS
SELECT m.budget, m.timeline FROM call_budget.call_budget_marker AS m
 WHERE m.started_at = pg_postmaster_start_time() AND m.timeline = call_budget.call_budget_timeline()
   AND m.table_oid = m.tableoid AND m.file_path = pg_relation_filepath(m.tableoid);

-- The server's clock went back: whatever holds a date goes back with it, or the budget would stand still for as long as the
-- step. The caller holds the budget's lock.
CREATE FUNCTION call_budget.call_budget_shift(budget_name text, now_us bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    step_us bigint;
BEGIN
    SELECT s.last_seen_us - now_us INTO step_us FROM call_budget.call_budget_schedule AS s WHERE s.budget = budget_name;
    IF step_us > 0 THEN
        UPDATE call_budget.call_budget_schedule AS s
           SET last_slot_us = s.last_slot_us - step_us, last_seen_us = now_us WHERE s.budget = budget_name;
        UPDATE call_budget.call_budget AS b
           SET blocked_until_us = b.blocked_until_us - step_us, fenced_until_us = b.fenced_until_us - step_us
         WHERE b.name = budget_name;
        UPDATE call_budget.call_budget_class AS c
           SET due_us = c.due_us - step_us, last_slot_us = c.last_slot_us - step_us WHERE c.budget = budget_name;
        UPDATE call_budget.call_budget_waiter AS w
           SET place_us = w.place_us - step_us, appointment_us = w.appointment_us - step_us WHERE w.budget = budget_name;
    END IF;
END $$;

-- Commits may have been forgotten: nothing starts before every slot that they can have promised is over. The queue is
-- forgotten with them. The caller holds the budget's lock.
CREATE FUNCTION call_budget.call_budget_fence_now(budget_name text, now_us bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- greatest: a fence after the settings have narrowed must not end before the one that covered the wider promise.
    UPDATE call_budget.call_budget AS b
       SET fenced_until_us = greatest(b.fenced_until_us,
                                      now_us + greatest(b.widest_lookahead_us, b.lookahead_us)
                                             + greatest(b.widest_max_cost, b.max_cost) * b.interval_us),
           widest_lookahead_us = b.lookahead_us, widest_max_cost = b.max_cost, fences = b.fences + 1
     WHERE b.name = budget_name;
    -- Or a clock that steps back before the next call would leave the fence standing for as long as the step.
    UPDATE call_budget.call_budget_schedule AS s SET last_seen_us = now_us, waiting = 0 WHERE s.budget = budget_name;
    DELETE FROM call_budget.call_budget_waiter AS w WHERE w.budget = budget_name;
    DELETE FROM call_budget.call_budget_marker AS m WHERE m.budget = budget_name;
    INSERT INTO call_budget.call_budget_marker (budget, started_at, timeline, table_oid, file_path)
    VALUES (budget_name, pg_postmaster_start_time(), call_budget.call_budget_timeline(),
            'call_budget.call_budget_marker'::regclass,
            pg_relation_filepath('call_budget.call_budget_marker'::regclass));
END $$;

-- The decision, with the time as an argument so that a test can choose it. Private: clients reach it only through
-- call_budget_acquire. The caller holds the lock on the budget's row, and `b` is that row.
--
-- Every call is a transaction of its own, in which PL/pgSQL prepares each expression and each table anew. So the way without
-- anybody waiting visits each table once and reckons little.
CREATE FUNCTION call_budget.call_budget_reserve(
    b call_budget.call_budget_state, class_name text, lane_id bigint, costs integer[], patience_us bigint, nonce bigint,
    now_us bigint
) RETURNS call_budget.call_budget_answer
LANGUAGE plpgsql AS $$
DECLARE
    warming   CONSTANT boolean := b.name = '';
    c         record;           -- the caller's class
    s         record;           -- the schedule
    base_us   bigint;           -- the first slot that is free
    timeline  bigint;           -- NULL where commits may have been forgotten since the last fence
    own_units bigint;           -- the lane's own row, where it has one
    own_place bigint;           -- its place in the queue, where it waits in this class
    alive     bigint;           -- other lanes that are in time for their appointment
    share     bigint;           -- units that one call takes at most while they wait
    my_rank   bigint[];
    heads     call_budget.call_budget_head[];
    head      call_budget.call_budget_head;
    its_rank  bigint[];
    blocked   boolean := false;
    slots     integer := 0;     -- callers granted
    used      bigint := 0;      -- units granted
    waits_us  bigint[] := '{}';
    rest      record;           -- what goes on waiting
    before_me bigint;
    estimate  bigint;
    retry_us  bigint;
    slow      boolean;          -- somebody waits, or begins to
    refusal   text;
BEGIN
    SELECT x.priority::integer, x.floor_ppm::integer, x.due_us, x.last_slot_us INTO c
      FROM call_budget.call_budget_class AS x WHERE x.budget = b.name AND x.name = class_name;
    IF (FOUND AND b.max_cost >= ALL (costs) AND NOT b.paused OR warming) IS NOT TRUE THEN
        refusal := CASE WHEN b.paused THEN 'paused' WHEN b.max_cost >= ALL (costs) THEN 'unknown_class' ELSE 'cost_out_of_range' END;
        RETURN ROW (call_budget.call_budget_contract(), nonce, waits_us, CASE refusal WHEN 'paused' THEN 1000000 END, refusal,
                    b.interval_us, b.lookahead_us, b.send_window_us, b.max_cost, b.version, b.fences,
                    call_budget.call_budget_timeline(), now_us)::call_budget.call_budget_answer;
    END IF;
    LOOP
        SELECT h.last_slot_us + h.last_cost * b.interval_us AS next_us, h.waiting, now_us < h.last_seen_us AS stepped_back INTO s
          FROM call_budget.call_budget_schedule AS h WHERE h.budget = b.name;
        SELECT r.timeline INTO timeline FROM call_budget.call_budget_remembered AS r WHERE r.budget = b.name;
        EXIT WHEN timeline IS NOT NULL AND NOT s.stepped_back OR warming;
        IF s.stepped_back IS NULL THEN
            RAISE EXCEPTION 'budget "%" has no row in call_budget_schedule: set the budget again', b.name USING ERRCODE = 'CB003';
        END IF;
        -- A clock that stepped back comes first, the fence second: the fence counts from the clock as it now is.
        IF s.stepped_back THEN
            PERFORM call_budget.call_budget_shift(b.name, now_us);
        END IF;
        IF timeline IS NULL THEN
            PERFORM call_budget.call_budget_fence_now(b.name, now_us);
        END IF;
        SELECT * INTO STRICT b FROM call_budget.call_budget_state AS t WHERE t.name = b.name;
        SELECT x.priority::integer, x.floor_ppm::integer, x.due_us, x.last_slot_us INTO c
          FROM call_budget.call_budget_class AS x WHERE x.budget = b.name AND x.name = class_name;
    END LOOP;
    base_us := greatest(s.next_us, b.fenced_until_us, b.blocked_until_us, now_us);

    IF s.waiting > 0 OR warming THEN
        SELECT count(*) FILTER (WHERE o.lane <> lane_id AND o.units > 0 AND o.appointment_us + b.send_window_us >= now_us),
               max(o.units) FILTER (WHERE o.lane = lane_id),
               max(o.place_us) FILTER (WHERE o.lane = lane_id AND o.units > 0 AND o.class = class_name)
          INTO alive, own_units, own_place FROM call_budget.call_budget_waiter AS o WHERE o.budget = b.name;
    END IF;
    -- A lane blocks this one if it ranks better AND its appointment comes in time for this slot: the absent never hold a
    -- slot idle. In its own class a newcomer queues behind whoever is due.
    IF alive > 0 OR warming THEN
        share := greatest(1, b.lookahead_us / (b.interval_us * (1 + least(4, alive))));
        my_rank := call_budget.call_budget_rank(c.floor_ppm, c.due_us, c.priority, c.last_slot_us, base_us);
        SELECT array_agg(ROW (h.*)::call_budget.call_budget_head) INTO heads FROM (
            SELECT x.name, x.priority, x.floor_ppm, x.due_us, x.last_slot_us, min(o.appointment_us), sum(least(o.units, share))::bigint
              FROM call_budget.call_budget_waiter AS o
              JOIN call_budget.call_budget_class AS x ON x.budget = o.budget AND x.name = o.class
             WHERE o.budget = b.name AND o.lane <> lane_id AND o.units > 0
               AND o.appointment_us + b.send_window_us >= now_us
             GROUP BY x.budget, x.name) AS h;
        heads := coalesce(heads, '{}');
        FOREACH head IN ARRAY heads LOOP
            its_rank := call_budget.call_budget_rank(head.floor_ppm, head.due_us, head.priority, head.last_slot_us, base_us);
            blocked := blocked OR head.earliest_us <= base_us
                AND CASE WHEN head.class = class_name THEN own_place IS NULL ELSE its_rank < my_rank END;
        END LOOP;
    END IF;

    -- While others wait, one call takes no more than its share.
    WHILE slots < cardinality(costs) AND NOT blocked AND base_us + used * b.interval_us <= now_us + b.lookahead_us
          AND (slots = 0 OR share IS NULL OR used + costs[slots + 1] <= share) LOOP
        waits_us := waits_us || (base_us + used * b.interval_us - now_us);
        used := used + costs[slots + 1];
        slots := slots + 1;
    END LOOP;

    IF slots > 0 OR warming THEN
        c.last_slot_us := base_us + (used - costs[slots]) * b.interval_us;
        IF c.floor_ppm > 0 THEN
            -- A share claimed because it was due moves on by what it took, so that waiting never adds up to a burst; a
            -- share taken by priority starts anew.
            c.due_us := CASE WHEN c.due_us <= base_us
                THEN greatest(c.due_us, base_us - b.lookahead_us) + used * b.interval_us * 1000000 / c.floor_ppm
                ELSE c.last_slot_us + costs[slots] * b.interval_us * 1000000 / c.floor_ppm END;
        END IF;
        UPDATE call_budget.call_budget_class AS x
           SET last_slot_us = c.last_slot_us, due_us = c.due_us, granted = x.granted + slots
         WHERE x.budget = b.name AND x.name = class_name;
    END IF;

    IF slots < cardinality(costs) OR warming THEN
        -- An appointment for what is left, by an estimate that is a lower bound.
        IF slots > 0 THEN
            base_us := greatest(base_us, c.last_slot_us + costs[slots] * b.interval_us);
            own_place := NULL;
        END IF;
        my_rank := call_budget.call_budget_rank(c.floor_ppm, c.due_us, c.priority, c.last_slot_us, base_us);
        SELECT coalesce(sum(least(o.units, share)), 0)::bigint AS ahead,
               (SELECT sum(u) FROM unnest(costs[slots + 1:]) AS u) AS units
          INTO rest
          FROM call_budget.call_budget_waiter AS o
         WHERE o.budget = b.name AND o.lane <> lane_id AND o.units > 0 AND o.class = class_name
           AND o.appointment_us + b.send_window_us >= now_us AND o.place_us < coalesce(own_place, now_us);
        before_me := 0;
        FOREACH head IN ARRAY coalesce(heads, '{}') LOOP
            its_rank := call_budget.call_budget_rank(head.floor_ppm, head.due_us, head.priority, head.last_slot_us, base_us);
            before_me := before_me + CASE
                WHEN head.class = class_name OR its_rank >= my_rank THEN 0
                WHEN its_rank[1] = 0 THEN 1
                WHEN head.priority < c.priority THEN head.units
                ELSE least(head.units, share) END;
        END LOOP;
        estimate := base_us + (rest.ahead + before_me) * b.interval_us;
        IF c.floor_ppm > 0 AND c.due_us > base_us THEN
            -- numeric: a long queue of a slow budget would not fit into a bigint
            estimate := least(estimate, c.due_us + div(rest.ahead::numeric * b.interval_us * 1000000, c.floor_ppm));
        END IF;
        IF slots = 0 AND estimate - now_us > patience_us THEN
            refusal := 'patience';
            retry_us := estimate - now_us;
        ELSE
            -- The nap, 5 s: nobody sleeps longer, so that new settings and dead lanes are noticed by then.
            retry_us := least(5000000, greatest(estimate - b.lookahead_us / 2 - now_us, least(b.interval_us, b.lookahead_us) / 4));
            IF (own_units > 0) IS NOT TRUE THEN
                -- A lane not seen for 10 minutes is gone.
                DELETE FROM call_budget.call_budget_waiter AS o WHERE o.budget = b.name AND o.appointment_us < now_us - 600000000;
            END IF;
            INSERT INTO call_budget.call_budget_waiter AS o (budget, lane, class, units, place_us, appointment_us)
            SELECT b.name, lane_id, class_name, rest.units, coalesce(own_place, now_us), now_us + retry_us WHERE NOT warming
                ON CONFLICT (budget, lane) DO UPDATE
               SET class = excluded.class, units = excluded.units, place_us = excluded.place_us, appointment_us = excluded.appointment_us;
        END IF;
    END IF;
    IF own_units > 0 AND retry_us IS NULL OR refusal IS NOT NULL OR warming THEN
        UPDATE call_budget.call_budget_waiter AS o SET units = 0 WHERE o.budget = b.name AND o.lane = lane_id;
    END IF;
    slow := s.waiting > 0 OR slots < cardinality(costs);
    IF NOT slow OR warming THEN
        UPDATE call_budget.call_budget_schedule AS h
           SET last_slot_us = c.last_slot_us, last_cost = costs[slots], last_seen_us = now_us WHERE h.budget = b.name;
    END IF;
    IF slow OR warming THEN
        UPDATE call_budget.call_budget_schedule AS h
           SET last_slot_us = CASE WHEN slots > 0 THEN c.last_slot_us ELSE h.last_slot_us END,
               last_cost = CASE WHEN slots > 0 THEN costs[slots] ELSE h.last_cost END, last_seen_us = now_us,
               waiting = (SELECT count(*) FROM call_budget.call_budget_waiter AS o WHERE o.budget = b.name AND o.units > 0)
         WHERE h.budget = b.name;
    END IF;
    RETURN ROW (call_budget.call_budget_contract(), nonce, waits_us, retry_us, refusal, b.interval_us, b.lookahead_us,
                b.send_window_us, b.max_cost, b.version, b.fences, timeline, now_us)::call_budget.call_budget_answer;
END $$;

CREATE FUNCTION call_budget.call_budget_acquire(
    budget_name text, class_name text, lane_id bigint, costs integer[], patience_us bigint, nonce bigint
) RETURNS call_budget.call_budget_answer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    b call_budget.call_budget_state;
BEGIN
    IF budget_name IS NULL OR class_name IS NULL OR nonce IS NULL
        OR (lane_id >= 0) IS NOT TRUE OR (patience_us BETWEEN 0 AND 86400000000) IS NOT TRUE
        OR (cardinality(costs) BETWEEN 1 AND 100000) IS NOT TRUE OR (0 < ALL (costs)) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'call_budget_acquire: an argument is out of range: no NULL, lane_id >= 0, costs 1 to 100000 numbers of at least 1, patience_us 0 to 1 day'
            USING ERRCODE = 'CB001';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'call_budget_acquire needs READ COMMITTED, this transaction is %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'CB002', HINT = 'run "call-budget access ROLE --as client" or set default_transaction_isolation';
    END IF;

    SELECT * INTO b FROM call_budget.call_budget_state AS t WHERE t.name = budget_name FOR UPDATE;
    IF NOT FOUND THEN
        IF budget_name = '' THEN
            b.name := '';
            -- PL/pgSQL plans a statement anew the first five times and keeps the plan from the sixth on.
            FOR i IN 1..6 LOOP
                PERFORM call_budget.call_budget_reserve(b, '', lane_id, '{1}', 0, nonce, 0);
            END LOOP;
        END IF;
        RETURN ROW (call_budget.call_budget_contract(), nonce, '{}', NULL, 'unknown_budget', NULL, NULL, NULL, NULL, NULL,
                    NULL, NULL, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)::call_budget.call_budget_answer;
    END IF;
    -- Only now: the wait for the lock is over.
    RETURN call_budget.call_budget_reserve(b, class_name, lane_id, costs, patience_us, nonce,
                                           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA call_budget FROM PUBLIC;
GRANT EXECUTE ON FUNCTION call_budget.call_budget_contract() TO PUBLIC;
