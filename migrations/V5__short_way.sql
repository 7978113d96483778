-- The short way: most calls are one caller's while nobody waits, and such a call need not go through the whole decision.
--
-- Every call is a transaction of its own, in which PL/pgSQL prepares each expression and each statement anew: about 1 us
-- an expression, 6 us a statement, more for a join. So the short way has few of them, and leaves whatever is not plain to
-- the whole decision, which is the one of before under a name of its own. Where the short way decides, both decide alike.

ALTER FUNCTION call_budget.call_budget_reserve(call_budget.call_budget_state, text, bigint, integer[], bigint, bigint, bigint)
    RENAME TO call_budget_decide;

-- As call_budget_decide: the caller holds the lock on the budget's row, and `b` is that row.
CREATE FUNCTION call_budget.call_budget_reserve(
    b call_budget.call_budget_state, class_name text, lane_id bigint, costs integer[], patience_us bigint, nonce bigint,
    now_us bigint
) RETURNS call_budget.call_budget_answer
LANGUAGE plpgsql AS $$
DECLARE
    s record;   -- the schedule
BEGIN
    IF cardinality(costs) = 1 THEN
        SELECT greatest(h.last_slot_us + h.last_cost * b.interval_us, b.fenced_until_us, b.blocked_until_us, now_us) AS base_us,
               h.waiting, h.last_seen_us,
               (SELECT r.timeline FROM call_budget.call_budget_remembered AS r WHERE r.budget = h.budget) AS timeline
          INTO s FROM call_budget.call_budget_schedule AS h WHERE h.budget = b.name;
        -- Nobody waits, the slot is near, nothing was forgotten, and the clock did not step back.
        IF costs[1] <= b.max_cost AND NOT b.paused AND s.waiting = 0
            AND s.base_us <= now_us + b.lookahead_us AND s.timeline IS NOT NULL AND s.last_seen_us <= now_us OR b.name = ''
        THEN
            UPDATE call_budget.call_budget_class AS x
               SET last_slot_us = s.base_us, granted = x.granted + 1,
                   due_us = CASE WHEN x.floor_ppm = 0 THEN x.due_us
                                 WHEN x.due_us <= s.base_us THEN greatest(x.due_us, s.base_us - b.lookahead_us)
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
