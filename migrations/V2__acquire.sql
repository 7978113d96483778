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

-- The budget's row as the functions below pass it about: what they need of it, in built-in types (a domain's rule would be
-- checked again at every hand-over).
CREATE VIEW call_budget.call_budget_state AS
SELECT b.name::text, b.interval_us::bigint, b.lookahead_us::bigint, b.send_window_us::bigint, b.max_cost::integer,
       b.version, b.paused, b.last_slot_us, b.last_cost, b.last_seen_us, b.blocked_until_us, b.fenced_until_us, b.fences,
       b.widest_lookahead_us, b.widest_max_cost
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
CREATE FUNCTION call_budget.call_budget_timeline() RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)
$$;

-- The server's clock went back by `step_us`: whatever holds a date goes back with it, or the budget would stand still for
-- as long as the step. The caller holds the budget's lock; `b` is written here and handed back.
CREATE FUNCTION call_budget.call_budget_shift(b call_budget.call_budget_state, step_us bigint) RETURNS call_budget.call_budget_state
LANGUAGE plpgsql AS $$
BEGIN
    b.last_seen_us     := b.last_seen_us - step_us;
    b.last_slot_us     := b.last_slot_us - step_us;
    b.blocked_until_us := b.blocked_until_us - step_us;
    b.fenced_until_us  := b.fenced_until_us - step_us;
    UPDATE call_budget.call_budget_class AS c
       SET due_us = c.due_us - step_us, last_slot_us = c.last_slot_us - step_us WHERE c.budget = b.name;
    UPDATE call_budget.call_budget_waiter AS w
       SET place_us = w.place_us - step_us, appointment_us = w.appointment_us - step_us WHERE w.budget = b.name;
    UPDATE call_budget.call_budget AS t
       SET last_seen_us = b.last_seen_us, last_slot_us = b.last_slot_us,
           blocked_until_us = b.blocked_until_us, fenced_until_us = b.fenced_until_us WHERE t.name = b.name;
    RETURN b;
END $$;

-- Commits may have been forgotten: nothing starts before every slot that they can have promised is over. The queue is
-- forgotten with them. The caller holds the budget's lock; `b` is written here and handed back.
CREATE FUNCTION call_budget.call_budget_fence_now(b call_budget.call_budget_state, now_us bigint) RETURNS call_budget.call_budget_state
LANGUAGE plpgsql AS $$
BEGIN
    -- greatest: a fence after the settings have narrowed must not end before the one that covered the wider promise.
    b.fenced_until_us := greatest(b.fenced_until_us,
                                  now_us + greatest(b.widest_lookahead_us, b.lookahead_us)
                                         + greatest(b.widest_max_cost, b.max_cost) * b.interval_us);
    b.widest_lookahead_us := b.lookahead_us;
    b.widest_max_cost     := b.max_cost;
    b.fences              := b.fences + 1;
    DELETE FROM call_budget.call_budget_waiter AS w WHERE w.budget = b.name;
    DELETE FROM call_budget.call_budget_marker AS m WHERE m.budget = b.name;
    INSERT INTO call_budget.call_budget_marker (budget, started_at, timeline, table_oid, file_path)
    VALUES (b.name, pg_postmaster_start_time(), call_budget.call_budget_timeline(),
            'call_budget.call_budget_marker'::regclass,
            pg_relation_filepath('call_budget.call_budget_marker'::regclass));
    -- last_seen_us: or a clock that steps back before the next call would leave the fence standing for as long as the step.
    UPDATE call_budget.call_budget AS t
       SET fenced_until_us = b.fenced_until_us, fences = b.fences, last_seen_us = now_us,
           widest_lookahead_us = b.widest_lookahead_us, widest_max_cost = b.widest_max_cost WHERE t.name = b.name;
    RETURN b;
END $$;

-- The decision, with the time as an argument so that a test can choose it. Private: clients reach it only through
-- call_budget_acquire. The caller holds the lock on the budget's row, and `b` is that row.
CREATE FUNCTION call_budget.call_budget_reserve(
    b call_budget.call_budget_state, class_name text, lane_id bigint, costs integer[], patience_us bigint, nonce bigint, now_us bigint
) RETURNS call_budget.call_budget_answer
LANGUAGE plpgsql AS $$
DECLARE
    nap_us     CONSTANT bigint := 5000000;    -- nobody sleeps longer: new settings and dead lanes are noticed by then
    sweep_us   CONSTANT bigint := 600000000;  -- a lane not seen for this long is gone
    million    CONSTANT bigint := 1000000;
    warming    CONSTANT boolean := b.name = '';
    answer     call_budget.call_budget_answer;
    this_timeline CONSTANT text := call_budget.call_budget_timeline();
    remembered boolean;
    mine       record;           -- the caller's class, and the lane's own row where it has one
    waiting    boolean;          -- the lane stood in the queue before this call
    alive      bigint;           -- other lanes that are in time for their appointment
    share      bigint;           -- units that one call may take while others wait
    heads      call_budget.call_budget_head[] := '{}';
    head       call_budget.call_budget_head;
    my_rank    bigint[];
    its_rank   bigint[];
    blocked    boolean := false;
    base_us    bigint;           -- the first slot that is free
    slot_us    bigint;
    used       bigint := 0;
    slots    integer := 0;
    waits_us   bigint[] := '{}';
    my_place_us bigint;
    rest       bigint;
    ahead      bigint := 0;
    before_me  bigint := 0;
    estimate   bigint;
BEGIN
    answer.contract := call_budget.call_budget_contract();
    answer.nonce := nonce;
    answer.store_us := now_us;
    answer.waits_us := waits_us;
    answer.interval_us := b.interval_us;
    answer.lookahead_us := b.lookahead_us;
    answer.send_window_us := b.send_window_us;
    answer.max_cost := b.max_cost;
    answer.version := b.version;
    answer.fences := b.fences;
    answer.timeline := ('x' || this_timeline)::bit(32)::bigint;

    IF b.paused THEN
        answer.reason := 'paused';
        answer.retry_us := million;
        RETURN answer;
    ELSIF (b.max_cost >= ALL (costs)) IS NOT TRUE THEN
        answer.reason := 'cost_out_of_range';
        RETURN answer;
    END IF;

    -- A clock that stepped back comes first, the fence second: the fence counts from the clock as it now is.
    IF now_us < b.last_seen_us THEN
        b := call_budget.call_budget_shift(b, b.last_seen_us - now_us);
    END IF;
    SELECT m.started_at = pg_postmaster_start_time() AND m.timeline = this_timeline
       AND m.table_oid = m.tableoid AND m.file_path = pg_relation_filepath(m.tableoid)
      INTO remembered FROM call_budget.call_budget_marker AS m WHERE m.budget = b.name;
    IF remembered IS NOT TRUE AND NOT warming THEN
        b := call_budget.call_budget_fence_now(b, now_us);
        answer.fences := b.fences;
    END IF;
    b.last_seen_us := now_us;

    SELECT c.priority::integer, c.floor_ppm::integer, c.due_us, c.last_slot_us, w.class AS lane_class, w.units AS lane_units, w.place_us AS lane_place_us,
           (SELECT count(*) FROM call_budget.call_budget_waiter AS o
             WHERE o.budget = b.name AND o.lane <> lane_id AND o.units > 0
               AND o.appointment_us + b.send_window_us >= now_us) AS alive
      INTO mine
      FROM call_budget.call_budget_class AS c
      LEFT JOIN call_budget.call_budget_waiter AS w ON w.budget = c.budget AND w.lane = lane_id
     WHERE c.budget = b.name AND c.name = class_name;
    IF NOT FOUND AND NOT warming THEN
        answer.reason := 'unknown_class';
        RETURN answer;
    END IF;
    waiting := coalesce(mine.lane_units > 0 AND mine.lane_class = class_name, false);
    alive := coalesce(mine.alive, 0);
    share := greatest(1, b.lookahead_us / (b.interval_us * (1 + least(4, alive))));
    base_us := greatest(b.last_slot_us + b.last_cost * b.interval_us, b.fenced_until_us, now_us, b.blocked_until_us);

    -- A lane blocks this one if it ranks better AND its appointment comes in time for this slot: the absent never hold a
    -- slot idle. In its own class a newcomer queues behind whoever is due.
    my_rank := call_budget.call_budget_rank(mine.floor_ppm, mine.due_us, mine.priority, mine.last_slot_us, base_us);
    IF alive > 0 OR warming THEN
        SELECT array_agg(ROW (h.*)::call_budget.call_budget_head) INTO heads FROM (
            SELECT c.name, c.priority, c.floor_ppm, c.due_us, c.last_slot_us, min(w.appointment_us), sum(least(w.units, share))::bigint
              FROM call_budget.call_budget_waiter AS w
              JOIN call_budget.call_budget_class AS c ON c.budget = w.budget AND c.name = w.class
             WHERE w.budget = b.name AND w.lane <> lane_id AND w.units > 0
               AND w.appointment_us + b.send_window_us >= now_us
             GROUP BY c.budget, c.name) AS h;
        heads := coalesce(heads, '{}');
        FOREACH head IN ARRAY heads LOOP
            its_rank := call_budget.call_budget_rank(head.floor_ppm, head.due_us, head.priority, head.last_slot_us, base_us);
            blocked := blocked OR head.earliest_us <= base_us
                AND CASE WHEN head.class = class_name THEN NOT waiting ELSE its_rank < my_rank END;
        END LOOP;
    END IF;

    WHILE NOT blocked AND slots < cardinality(costs) LOOP
        EXIT WHEN base_us + used * b.interval_us > now_us + b.lookahead_us
               OR slots > 0 AND alive > 0 AND used + costs[slots + 1] > share;
        slot_us := base_us + used * b.interval_us;
        waits_us := waits_us || (slot_us - now_us);
        used := used + costs[slots + 1];
        slots := slots + 1;
    END LOOP;

    IF slots > 0 OR warming THEN
        b.last_slot_us := slot_us;
        b.last_cost := costs[slots];
        mine.last_slot_us := slot_us;
        IF mine.floor_ppm > 0 THEN
            -- A share claimed because it was due moves on by what it took, so that waiting never adds up to a burst; a
            -- share taken by priority starts anew.
            mine.due_us := CASE WHEN my_rank[1] = 0
                THEN greatest(mine.due_us, base_us - b.lookahead_us) + used * b.interval_us * million / mine.floor_ppm
                ELSE slot_us + b.last_cost * b.interval_us * million / mine.floor_ppm END;
        END IF;
        UPDATE call_budget.call_budget_class AS c
           SET due_us = mine.due_us, last_slot_us = mine.last_slot_us, granted = c.granted + slots
         WHERE c.budget = b.name AND c.name = class_name;
    END IF;

    IF slots < cardinality(costs) OR warming THEN
        -- An appointment for what is left. The estimate is a lower bound.
        SELECT sum(x) INTO rest FROM unnest(costs[slots + 1:]) AS x;
        base_us := greatest(b.last_slot_us + b.last_cost * b.interval_us, b.fenced_until_us, base_us);
        my_place_us := CASE WHEN waiting AND slots = 0 THEN mine.lane_place_us ELSE now_us END;
        my_rank := call_budget.call_budget_rank(mine.floor_ppm, mine.due_us, mine.priority, mine.last_slot_us, base_us);
        IF alive > 0 OR warming THEN
            SELECT coalesce(sum(least(w.units, share)), 0) INTO ahead FROM call_budget.call_budget_waiter AS w
             WHERE w.budget = b.name AND w.lane <> lane_id AND w.units > 0 AND w.class = class_name
               AND w.appointment_us + b.send_window_us >= now_us AND w.place_us < my_place_us;
        END IF;
        FOREACH head IN ARRAY heads LOOP
            its_rank := call_budget.call_budget_rank(head.floor_ppm, head.due_us, head.priority, head.last_slot_us, base_us);
            before_me := before_me + CASE
                WHEN head.class = class_name OR its_rank >= my_rank THEN 0
                WHEN its_rank[1] = 0 THEN 1
                WHEN head.priority < mine.priority THEN head.units
                ELSE least(head.units, share) END;
        END LOOP;
        estimate := base_us + (ahead + before_me) * b.interval_us;
        IF mine.floor_ppm > 0 AND mine.due_us > base_us THEN
            -- numeric: a long queue of a slow budget would not fit into a bigint
            estimate := least(estimate, mine.due_us + div(ahead::numeric * b.interval_us * million, mine.floor_ppm));
        END IF;
        IF slots = 0 AND estimate - now_us > patience_us THEN
            answer.reason := 'patience';
            answer.retry_us := estimate - now_us;
            rest := 0;
        ELSE
            answer.retry_us := least(nap_us, greatest(estimate - b.lookahead_us / 2 - now_us, least(b.interval_us, b.lookahead_us) / 4));
        END IF;
    ELSE
        rest := 0;
    END IF;

    IF rest > 0 OR warming THEN
        IF mine.lane_units IS NULL THEN
            DELETE FROM call_budget.call_budget_waiter AS w WHERE w.budget = b.name AND w.appointment_us < now_us - sweep_us;
        END IF;
        INSERT INTO call_budget.call_budget_waiter AS w (budget, lane, class, units, place_us, appointment_us)
        SELECT b.name, lane_id, class_name, rest, my_place_us, now_us + answer.retry_us WHERE NOT warming
            ON CONFLICT (budget, lane) DO UPDATE
           SET class = excluded.class, units = excluded.units, place_us = excluded.place_us, appointment_us = excluded.appointment_us;
    END IF;
    IF rest = 0 AND mine.lane_units > 0 OR warming THEN
        UPDATE call_budget.call_budget_waiter AS w SET units = 0 WHERE w.budget = b.name AND w.lane = lane_id;
    END IF;

    UPDATE call_budget.call_budget AS t
       SET last_slot_us = b.last_slot_us, last_cost = b.last_cost, last_seen_us = b.last_seen_us
     WHERE t.name = b.name;
    answer.waits_us := waits_us;
    RETURN answer;
END $$;

CREATE FUNCTION call_budget.call_budget_acquire(
    budget_name text, class_name text, lane_id bigint, costs integer[], patience_us bigint, nonce bigint
) RETURNS call_budget.call_budget_answer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan  -- plan each statement once a session, not five times under the lock
AS $$
DECLARE
    b      call_budget.call_budget_state;
    answer call_budget.call_budget_answer;
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
            b.interval_us := 1;
            b.lookahead_us := 1;
            b.max_cost := 1;
            answer := call_budget.call_budget_reserve(b, '', lane_id, '{1}', 0, nonce, 0);
        END IF;
        answer.contract := call_budget.call_budget_contract();
        answer.nonce := nonce;
        answer.waits_us := '{}';
        answer.retry_us := NULL;
        answer.reason := 'unknown_budget';
        answer.store_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
        RETURN answer;
    END IF;
    -- Only now: the wait for the lock is over.
    RETURN call_budget.call_budget_reserve(b, class_name, lane_id, costs, patience_us, nonce,
                                           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA call_budget FROM PUBLIC;
GRANT EXECUTE ON FUNCTION call_budget.call_budget_contract() TO PUBLIC;
