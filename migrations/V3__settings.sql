-- Settings, pause, pushback, fence: what operators do, and the two things that a caller may ask for.
--
-- Every function takes the budget's lock first, like call_budget_acquire, and takes effect with the next call: no reset,
-- no debt. They commit durably whatever the role's synchronous_commit says.
-- SQLSTATEs: CB003 there is no such budget or class; CB004 refused, the message says why and what to do; 23514 a setting
-- breaks the constraint whose name is the sentence to read.

-- These few commits must not be forgotten. Stronger modes than `on` are left alone.
CREATE FUNCTION call_budget.call_budget_durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE FUNCTION call_budget.call_budget_now_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

CREATE FUNCTION call_budget.call_budget_lock(budget_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM call_budget.call_budget AS b WHERE b.name = budget_name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no budget "%": "call-budget budget list" shows those that exist', budget_name USING ERRCODE = 'CB003';
    END IF;
    PERFORM call_budget.call_budget_durably();
END $$;

-- Takes the budget's lock and brings its dates in step with the clock. Returns the time, read after the lock.
CREATE FUNCTION call_budget.call_budget_lock_now(budget_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint;
BEGIN
    PERFORM call_budget.call_budget_lock(budget_name);
    now_us := call_budget.call_budget_now_us();
    PERFORM call_budget.call_budget_shift(budget_name, now_us);
    RETURN now_us;
END $$;

-- How long a slot that was granted can still leave, in microseconds: 0 when there is none.
CREATE FUNCTION call_budget.call_budget_out_us(budget_name text, now_us bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT greatest(0, greatest(s.last_slot_us + s.last_cost * b.interval_us, b.fenced_until_us) + b.send_window_us - now_us)
      FROM call_budget.call_budget AS b JOIN call_budget.call_budget_schedule AS s ON s.budget = b.name
     WHERE b.name = budget_name
$$;

-- Creates the budget or changes its settings. Returns the new version.
CREATE FUNCTION call_budget.call_budget_set(
    budget_name text, limit_units integer, window_us bigint, send_window_us bigint, arrival_jitter_us bigint,
    max_cost integer, interval_us bigint, lookahead_us bigint
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    new_version bigint;
BEGIN
    PERFORM call_budget.call_budget_durably();
    INSERT INTO call_budget.call_budget AS t
        (name, limit_units, window_us, send_window_us, arrival_jitter_us, max_cost, interval_us, lookahead_us,
         widest_lookahead_us, widest_max_cost)
    VALUES (budget_name, limit_units, window_us, send_window_us, arrival_jitter_us, max_cost, interval_us, lookahead_us,
            lookahead_us, max_cost)
    ON CONFLICT (name) DO UPDATE
       SET limit_units = excluded.limit_units, window_us = excluded.window_us, send_window_us = excluded.send_window_us,
           arrival_jitter_us = excluded.arrival_jitter_us, max_cost = excluded.max_cost, interval_us = excluded.interval_us,
           lookahead_us = excluded.lookahead_us, version = t.version + 1,
           -- Slots promised under the old settings may still be out.
           widest_lookahead_us = greatest(t.widest_lookahead_us, excluded.lookahead_us),
           widest_max_cost = greatest(t.widest_max_cost, excluded.max_cost)
    RETURNING t.version INTO new_version;
    INSERT INTO call_budget.call_budget_schedule (budget) VALUES (budget_name) ON CONFLICT (budget) DO NOTHING;
    RETURN new_version;
END $$;

-- Deletes the budget with its classes and waiters, once nothing that it granted can still leave: a new budget of the same
-- name would know nothing of it.
CREATE FUNCTION call_budget.call_budget_delete(budget_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := call_budget.call_budget_lock_now(budget_name);
    out_us bigint := call_budget.call_budget_out_us(budget_name, now_us);
BEGIN
    IF out_us > 0 THEN
        RAISE EXCEPTION 'calls granted under budget "%" can still leave for % ms: "call-budget budget drain" it first',
            budget_name, ceil(out_us / 1000.0) USING ERRCODE = 'CB004';
    END IF;
    DELETE FROM call_budget.call_budget_class  AS c WHERE c.budget = budget_name;
    DELETE FROM call_budget.call_budget_waiter AS w WHERE w.budget = budget_name;
    DELETE FROM call_budget.call_budget_marker AS m WHERE m.budget = budget_name;
    DELETE FROM call_budget.call_budget_schedule AS s WHERE s.budget = budget_name;
    DELETE FROM call_budget.call_budget AS b WHERE b.name = budget_name;
END $$;

CREATE FUNCTION call_budget.call_budget_class_set(budget_name text, class_name text, priority integer, floor_ppm integer)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM call_budget.call_budget_lock(budget_name);
    INSERT INTO call_budget.call_budget_class AS c (budget, name, priority, floor_ppm)
    VALUES (budget_name, class_name, priority, floor_ppm)
    ON CONFLICT (budget, name) DO UPDATE SET priority = excluded.priority, floor_ppm = excluded.floor_ppm;
    -- Refuse here, not at the commit: the answer belongs to this call.
    SET CONSTRAINTS call_budget."the floors of a budget sum to at most 1" IMMEDIATE;
END $$;

CREATE FUNCTION call_budget.call_budget_class_delete(budget_name text, class_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM call_budget.call_budget_lock(budget_name);
    DELETE FROM call_budget.call_budget_waiter AS w WHERE w.budget = budget_name AND w.class = class_name;
    DELETE FROM call_budget.call_budget_class  AS c WHERE c.budget = budget_name AND c.name = class_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'budget "%" has no class "%": "call-budget class list" shows those that exist', budget_name, class_name
            USING ERRCODE = 'CB003';
    END IF;
END $$;

-- Pause stops grants at once. Slots already granted (at most lookahead + send window) still leave: see
-- call_budget_drained_us. Resuming releases no burst, since nothing is ever saved up.
CREATE FUNCTION call_budget.call_budget_pause(budget_name text, reason text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM call_budget.call_budget_lock(budget_name);
    UPDATE call_budget.call_budget AS b
       SET paused = true, paused_reason = reason, paused_by = session_user, version = b.version + 1 WHERE b.name = budget_name;
END $$;

CREATE FUNCTION call_budget.call_budget_resume(budget_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM call_budget.call_budget_lock(budget_name);
    UPDATE call_budget.call_budget AS b
       SET paused = false, paused_reason = NULL, paused_by = NULL, version = b.version + 1 WHERE b.name = budget_name;
END $$;

-- The same for operators, who have paused the budget and wait for 0.
CREATE FUNCTION call_budget.call_budget_drained_us(budget_name text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := call_budget.call_budget_lock_now(budget_name);
BEGIN
    IF NOT EXISTS (SELECT FROM call_budget.call_budget_remembered AS r WHERE r.budget = budget_name) THEN
        -- The last grants may be forgotten, and a paused budget decides nothing: nobody else would fence.
        PERFORM call_budget.call_budget_fence_now(budget_name, now_us);
    END IF;
    RETURN call_budget.call_budget_out_us(budget_name, now_us);
END $$;

-- The vendor itself said "too many": everybody's next slot moves. Repeated reports come to their maximum, never their
-- sum. Slots already granted still leave. Returns the time left, in microseconds.
CREATE FUNCTION call_budget.call_budget_push_back(budget_name text, duration_us bigint, cap_us bigint, reason text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    now_us   bigint;
    until_us bigint;
BEGIN
    IF (duration_us >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a pushback lasts 0 or longer, not % us', duration_us USING ERRCODE = 'CB004';
    END IF;
    now_us := call_budget.call_budget_lock_now(budget_name);
    until_us := now_us + least(duration_us, cap_us);
    UPDATE call_budget.call_budget AS b
       SET blocked_until_us = until_us, blocked_reason = reason, blocked_by = session_user
     WHERE b.name = budget_name AND b.blocked_until_us < until_us;
    IF FOUND THEN
        UPDATE call_budget.call_budget_schedule AS s SET last_seen_us = now_us WHERE s.budget = budget_name;
    END IF;
    RETURN (SELECT b.blocked_until_us - now_us FROM call_budget.call_budget AS b WHERE b.name = budget_name);
END $$;

-- For operators: at most 1 hour. Returns the time left, in microseconds.
CREATE FUNCTION call_budget.call_budget_pushback(budget_name text, duration_us bigint, reason text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT call_budget.call_budget_push_back(budget_name, duration_us, 3600000000, reason)
$$;

-- For callers, who heard it from the vendor: at most 60 s.
CREATE FUNCTION call_budget.call_budget_report_pushback(budget_name text, duration_us bigint, reason text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT call_budget.call_budget_push_back(budget_name, duration_us, 60000000, reason)
$$;

-- One quiet moment. Returns its length in microseconds.
CREATE FUNCTION call_budget.call_budget_fence(budget_name text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := call_budget.call_budget_lock_now(budget_name);
BEGIN
    PERFORM call_budget.call_budget_fence_now(budget_name, now_us);
    RETURN (SELECT b.fenced_until_us - now_us FROM call_budget.call_budget AS b WHERE b.name = budget_name);
END $$;

-- For callers who saw the store's clock step: at most one fence in 10 s. Says whether this call fenced.
CREATE FUNCTION call_budget.call_budget_request_fence(budget_name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := call_budget.call_budget_lock_now(budget_name);
BEGIN
    IF (SELECT b.fenced_until_us > now_us - 10000000 FROM call_budget.call_budget AS b WHERE b.name = budget_name) THEN
        RETURN false;
    END IF;
    PERFORM call_budget.call_budget_fence_now(budget_name, now_us);
    RETURN true;
END $$;

-- What there is to see. Read-only, for callers and operators; ages and remaining times, no dates.
CREATE VIEW call_budget.call_budget_status AS
SELECT b.name, b.limit_units, b.window_us, b.send_window_us, b.arrival_jitter_us, b.max_cost, b.interval_us, b.lookahead_us,
       b.version, b.fences,
       b.paused, b.paused_reason, b.paused_by,
       greatest(0, b.blocked_until_us - n.now_us) AS blocked_for_us, b.blocked_reason, b.blocked_by,
       greatest(0, b.fenced_until_us - n.now_us)  AS fenced_for_us,
       CASE WHEN s.last_slot_us > 0 THEN n.now_us - s.last_slot_us END AS last_slot_age_us
  FROM call_budget.call_budget AS b
  JOIN call_budget.call_budget_schedule AS s ON s.budget = b.name,
       LATERAL (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 0 * s.last_cost AS now_us) AS n;

CREATE VIEW call_budget.call_budget_class_status AS
SELECT c.budget, c.name, c.priority, c.floor_ppm, c.granted,
       coalesce(w.lanes, 0) AS waiting_lanes, coalesce(w.units, 0)::bigint AS waiting_units,
       CASE WHEN c.last_slot_us > 0 THEN n.now_us - c.last_slot_us END AS last_slot_age_us
  FROM call_budget.call_budget_class AS c
  JOIN call_budget.call_budget AS b ON b.name = c.budget,
       LATERAL (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 0 * c.priority AS now_us) AS n,
       LATERAL (SELECT count(*) AS lanes, sum(w.units) AS units FROM call_budget.call_budget_waiter AS w
                 WHERE w.budget = c.budget AND w.class = c.name AND w.units > 0
                   AND w.appointment_us + b.send_window_us >= n.now_us) AS w;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA call_budget FROM PUBLIC;
GRANT EXECUTE ON FUNCTION call_budget.call_budget_contract() TO PUBLIC;
