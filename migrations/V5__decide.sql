-- The decision, in a short way and a whole one. Arguments, answers and promise are those of V2, but for this:
--   'patience' refuses the first caller alone. A lane that has a place and asks for others behind him keeps that place, as
--   if it had an appointment now: it is to come back for them at once. Nothing is booked for him, nor for a lane that waits
--   for him alone, nor for one without a place. A lane that does not come back blocks nobody once the send window is over.
--
--   A floor that is due waits for the floors due before it, and loses nothing by that as long as it is at most the lookahead,
--   or three calls of the largest cost. (Of the lookahead alone, where it is shorter than an interval, classes got 0.6 to 0.8
--   of their floor.) What it waited longer than that is lost: or a class long absent would take a burst.

-- The decision, with the time as an argument so that a test can choose it. Private: clients reach it only through
-- call_budget_acquire. The caller holds the lock on the budget's row, and `b` is that row.
CREATE FUNCTION call_budget.call_budget_decide(
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
    behind    bigint := 0;      -- units that those behind a refused head want, where the lane keeps its place
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
                THEN greatest(c.due_us, base_us - greatest(b.lookahead_us, 3 * b.max_cost * b.interval_us)) + used * b.interval_us * 1000000 / c.floor_ppm
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
               CASE b.max_cost WHEN 1 THEN cardinality(costs) - slots   -- of a thousand callers a third of the whole call
                               ELSE (SELECT sum(u) FROM unnest(costs[slots + 1:]) AS u) END AS units
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
            behind := CASE WHEN own_place IS NULL THEN 0 ELSE rest.units - costs[1] END;
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
        -- Who is refused waits no more. Those behind him keep the lane's place: it comes back for them at once.
        UPDATE call_budget.call_budget_waiter AS o
           SET units = behind, appointment_us = CASE behind WHEN 0 THEN o.appointment_us ELSE now_us END
         WHERE o.budget = b.name AND o.lane = lane_id;
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

-- The short way: most calls are one caller's while nobody waits, and such a call need not go through the whole decision.
--
-- Every call is a transaction of its own, in which PL/pgSQL prepares each expression and each statement anew: about 1 us
-- an expression, 6 us a statement, more for a join. So the short way has few of them, and leaves whatever is not plain to
-- the whole decision. Where the short way decides, both decide alike.
--
-- As call_budget_decide: the caller holds the lock on the budget's row, and `b` is that row.
CREATE OR REPLACE FUNCTION call_budget.call_budget_reserve(
    b call_budget.call_budget_state, class_name text, lane_id bigint, costs integer[], patience_us bigint, nonce bigint,
    now_us bigint
) RETURNS call_budget.call_budget_answer
LANGUAGE plpgsql AS $$
DECLARE
    s record;   -- the schedule
BEGIN
    IF cardinality(costs) = 1 THEN
        SELECT greatest(h.last_slot_us + h.last_cost * b.interval_us, b.fenced_until_us, b.blocked_until_us, now_us) AS base_us,
               h.last_seen_us,
               -- Not looked for where somebody waits: that is for the whole decision.
               CASE WHEN h.waiting = 0 THEN
                   (SELECT r.timeline FROM call_budget.call_budget_remembered AS r WHERE r.budget = h.budget) END AS timeline
          INTO s FROM call_budget.call_budget_schedule AS h WHERE h.budget = b.name;
        -- Nobody waits, the slot is near, nothing was forgotten, and the clock did not step back.
        IF s.timeline IS NOT NULL AND costs[1] <= b.max_cost AND NOT b.paused
            AND s.base_us <= now_us + b.lookahead_us AND s.last_seen_us <= now_us OR b.name = ''
        THEN
            UPDATE call_budget.call_budget_class AS x
               SET last_slot_us = s.base_us, granted = x.granted + 1,
                   due_us = CASE WHEN x.floor_ppm = 0 THEN x.due_us
                                 WHEN x.due_us <= s.base_us
                                 THEN greatest(x.due_us, s.base_us - greatest(b.lookahead_us, 3 * b.max_cost * b.interval_us))
                                 ELSE s.base_us END
                          + CASE WHEN x.floor_ppm = 0 THEN 0 ELSE costs[1] * b.interval_us * 1000000 / x.floor_ppm END
             WHERE x.budget = b.name AND x.name = class_name;
            IF FOUND OR b.name = '' THEN
                UPDATE call_budget.call_budget_schedule AS h
                   SET last_slot_us = s.base_us, last_cost = costs[1], last_seen_us = now_us WHERE h.budget = b.name;
                RETURN ROW (call_budget.call_budget_contract(), nonce, ARRAY[s.base_us - now_us], NULL, NULL, b.interval_us,
                            b.lookahead_us, b.send_window_us, b.max_cost, b.version, b.fences, s.timeline, now_us)::call_budget.call_budget_answer;
            END IF;
        END IF;
    END IF;
    RETURN call_budget.call_budget_decide(b, class_name, lane_id, costs, patience_us, nonce, now_us);
END $$;

-- As before, but for fewer expressions, and a new connection warms itself on both ways.
CREATE OR REPLACE FUNCTION call_budget.call_budget_acquire(
    budget_name text, class_name text, lane_id bigint, costs integer[], patience_us bigint, nonce bigint
) RETURNS call_budget.call_budget_answer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    b call_budget.call_budget_state;
BEGIN
    IF (budget_name IS NOT NULL AND class_name IS NOT NULL AND nonce IS NOT NULL AND lane_id >= 0
        AND patience_us BETWEEN 0 AND 86400000000 AND cardinality(costs) BETWEEN 1 AND 100000 AND 0 < ALL (costs)) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'call_budget_acquire: an argument is out of range: no NULL, lane_id >= 0, costs 1 to 100000 numbers of at least 1, patience_us 0 to 1 day'
            USING ERRCODE = 'CB001';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'call_budget_acquire needs READ COMMITTED, this transaction is %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'CB002', HINT = 'run "call-budget access ROLE --as client" or set default_transaction_isolation';
    END IF;

    SELECT * INTO b FROM call_budget.call_budget_state AS t WHERE t.name = budget_name FOR UPDATE;
    IF FOUND THEN
        -- Only now: the wait for the lock is over.
        RETURN call_budget.call_budget_reserve(b, class_name, lane_id, costs, patience_us, nonce,
                                               (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    END IF;
    IF budget_name = '' THEN
        b.name := '';
        -- PL/pgSQL plans a statement anew the first five times and keeps the plan from the sixth on.
        FOR i IN 1..6 LOOP
            PERFORM call_budget.call_budget_reserve(b, '', lane_id, '{1}', 0, nonce, 0);
            PERFORM call_budget.call_budget_decide(b, '', lane_id, '{1}', 0, nonce, 0);
        END LOOP;
    END IF;
    RETURN ROW (call_budget.call_budget_contract(), nonce, '{}', NULL, 'unknown_budget', NULL, NULL, NULL, NULL, NULL,
                NULL, NULL, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)::call_budget.call_budget_answer;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA call_budget FROM PUBLIC;
GRANT EXECUTE ON FUNCTION call_budget.call_budget_contract() TO PUBLIC;
