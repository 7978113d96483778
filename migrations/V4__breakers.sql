-- What processes say of their circuit breakers, for people ("call-budget status"). It decides nothing: no other function reads
-- it, and no lock of a budget is taken.
--
-- A process tells of all its breakers in one call, at most once a second. Durations only: caller and store share no clock.
-- SQLSTATEs: CB001 an argument is out of range; CB004 too many rows are kept; 23514 a name or a number breaks the constraint whose name is the sentence to
-- read; those of class 22 a value has another type.

-- Unlogged: worth nothing after a crash, and a commit that writes only here waits for no disk.
CREATE UNLOGGED TABLE call_budget.call_budget_breaker (
    -- 63 random bits that a process draws once. Its sessions' name, for people, goes with it.
    process          bigint           NOT NULL,
    breaker          call_budget.name NOT NULL,
    -- Behind it: at most 20, of 100 characters.
    surfaces         text[]           NOT NULL,
    application_name text             NOT NULL,
    published_us     bigint           NOT NULL,
    state            text             NOT NULL,
    why              text             NOT NULL,
    -- Of that moment: until something can change, and for how long the episode had lasted.
    retry_us         bigint,
    rung             integer          NOT NULL,
    failure_rate_ppm integer,
    slow_rate_ppm    integer,
    successes        bigint           NOT NULL,
    failures         bigint           NOT NULL,
    rejected         bigint           NOT NULL,
    episode_us       bigint,
    total_open_us    bigint,
    reopen_count     integer,
    probe_count      integer,
    cause            text,
    -- A list of {scope, why, left_us}, as call_budget_publish_breakers writes it.
    holds            jsonb            NOT NULL,
    CONSTRAINT "a process has one row for a breaker" PRIMARY KEY (process, breaker),
    CONSTRAINT "a state and a cause are words of a to z, 30 characters at most"
        CHECK (state ~ '^[a-z_]{1,30}$' AND cause ~ '^[a-z_]{1,30}$'),
    CONSTRAINT "a rate is between 0 and 1,000,000 parts"
        CHECK (failure_rate_ppm BETWEEN 0 AND 1000000 AND slow_rate_ppm BETWEEN 0 AND 1000000),
    CONSTRAINT "a duration is between 0 and 10 years"
        CHECK (retry_us BETWEEN 0 AND 315576000000000 AND episode_us BETWEEN 0 AND 315576000000000
               AND total_open_us BETWEEN 0 AND 315576000000000),
    CONSTRAINT "a count is between 0 and a quadrillion"
        CHECK (rung >= 0 AND reopen_count >= 0 AND probe_count >= 0 AND successes BETWEEN 0 AND 1000000000000000
               AND failures BETWEEN 0 AND 1000000000000000 AND rejected BETWEEN 0 AND 1000000000000000),
    CONSTRAINT "an episode is told as a whole or not at all"
        CHECK (num_nulls(episode_us, total_open_us, reopen_count, probe_count, cause) IN (0, 5))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, vacuum_truncate = off);

-- Somebody else's text as it is kept: one line of at most 200 characters.
CREATE FUNCTION call_budget.call_budget_one_line(line text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT regexp_replace("left"(coalesce(line, ''), 200), '[[:cntrl:]]', ' ', 'g')
$$;

-- Shows these breakers of the process instead of those that it showed before. Returns 0, or, when its last call was less than a
-- second ago, how long it has to wait, in microseconds; then nothing is changed.
CREATE FUNCTION call_budget.call_budget_publish_breakers(process_id bigint, breakers jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last_us bigint;
    now_us  bigint;
    own     bigint;
    added   bigint;
BEGIN
    IF (process_id >= 0) IS NOT TRUE
        OR (CASE WHEN jsonb_typeof(breakers) = 'array' THEN jsonb_array_length(breakers) END BETWEEN 0 AND 100) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'call_budget_publish_breakers: an argument is out of range: process_id >= 0, breakers a list of at most 100'
            USING ERRCODE = 'CB001';
    END IF;
    -- In one order, here and below: two calls of one process must not wait for each other.
    SELECT max(o.published_us), count(*) INTO last_us, own
      FROM (SELECT b.published_us FROM call_budget.call_budget_breaker AS b
             WHERE b.process = process_id ORDER BY b.breaker FOR UPDATE) AS o;
    now_us := call_budget.call_budget_now_us();
    -- (The clock may have gone back.)
    IF now_us - last_us BETWEEN 0 AND 999999 THEN
        RETURN last_us + 1000000 - now_us;
    END IF;
    added := jsonb_array_length(breakers) - own;
    IF added > 0 THEN
        -- Whoever adds rows takes old ones away. Both looks are short, since the second keeps the table so.
        DELETE FROM call_budget.call_budget_breaker AS b
         USING (SELECT o.process, o.breaker FROM call_budget.call_budget_breaker AS o
                 WHERE o.published_us NOT BETWEEN now_us - 3600000000 AND now_us + 3600000000 AND o.process <> process_id
                 LIMIT 1000 FOR UPDATE SKIP LOCKED) AS old
         WHERE b.process = old.process AND b.breaker = old.breaker;
        IF (SELECT count(*) FROM (SELECT FROM call_budget.call_budget_breaker LIMIT 10000) AS kept) + added > 10000 THEN
            RAISE EXCEPTION 'call_budget_publish_breakers: 10,000 rows are kept, and none of them is an hour old'
                USING ERRCODE = 'CB004';
        END IF;
    END IF;
    INSERT INTO call_budget.call_budget_breaker AS b
        (process, breaker, surfaces, application_name, published_us, state, why, retry_us, rung, failure_rate_ppm, slow_rate_ppm,
         successes, failures, rejected, episode_us, total_open_us, reopen_count, probe_count, cause, holds)
    SELECT process_id, t.breaker,
           (SELECT coalesce(array_agg("left"(call_budget.call_budget_one_line(s.name), 100) ORDER BY s.place), '{}')
              FROM unnest(t.surfaces) WITH ORDINALITY AS s (name, place) WHERE s.place <= 20),
           current_setting('application_name'), now_us, t.state,
           call_budget.call_budget_one_line(t.why), t.retry_us, coalesce(t.rung, 0), t.failure_rate_ppm, t.slow_rate_ppm,
           coalesce(t.successes, 0), coalesce(t.failures, 0), coalesce(t.rejected, 0),
           t.episode_us, t.total_open_us, t.reopen_count, t.probe_count, t.cause,
           (SELECT coalesce(jsonb_agg(jsonb_build_object('scope', call_budget.call_budget_one_line(h.scope),
                                                         'why', call_budget.call_budget_one_line(h.why),
                                                         'left_us', least(greatest(h.left_us, 0), 315576000000000))), '[]')
              FROM (SELECT * FROM jsonb_to_recordset(coalesce(t.holds, '[]')) AS x (scope text, why text, left_us bigint)
                     LIMIT 20) AS h)
      FROM jsonb_to_recordset(breakers)
        AS t (breaker text, surfaces text[], state text, why text, retry_us bigint, rung integer, failure_rate_ppm integer,
              slow_rate_ppm integer, successes bigint, failures bigint, rejected bigint, episode_us bigint,
              total_open_us bigint, reopen_count integer, probe_count integer, cause text, holds jsonb)
     ORDER BY t.breaker
    ON CONFLICT (process, breaker) DO UPDATE
       SET surfaces = excluded.surfaces, application_name = excluded.application_name, published_us = excluded.published_us, state = excluded.state,
           why = excluded.why, retry_us = excluded.retry_us, rung = excluded.rung,
           failure_rate_ppm = excluded.failure_rate_ppm, slow_rate_ppm = excluded.slow_rate_ppm,
           successes = excluded.successes, failures = excluded.failures, rejected = excluded.rejected,
           episode_us = excluded.episode_us, total_open_us = excluded.total_open_us, reopen_count = excluded.reopen_count,
           probe_count = excluded.probe_count, cause = excluded.cause, holds = excluded.holds;
    DELETE FROM call_budget.call_budget_breaker AS b WHERE b.process = process_id AND b.published_us <> now_us;
    RETURN 0;
END $$;

-- What there is to see: ages and remaining times, no dates. A process whose breakers are all closed has nothing new to tell, so
-- its rows grow stale; an hour old they are shown no more.
CREATE VIEW call_budget.call_budget_breaker_status AS
SELECT b.breaker::text, b.surfaces, b.process, b.application_name, b.state, b.why,
       CASE WHEN b.retry_us IS NOT NULL THEN greatest(0, b.retry_us - n.age_us) END AS retry_us,
       b.rung, b.failure_rate_ppm, b.slow_rate_ppm, b.successes + b.failures AS calls, b.successes, b.failures, b.rejected,
       b.episode_us + n.age_us AS episode_age_us, b.total_open_us, b.reopen_count, b.probe_count, b.cause,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('scope', h.scope, 'why', h.why, 'left_us', greatest(0, h.left_us - n.age_us))), '[]')
          FROM jsonb_to_recordset(b.holds) AS h (scope text, why text, left_us bigint)) AS holds,
       n.age_us, n.stepped_back OR n.age_us > 60000000 AS stale
  FROM call_budget.call_budget_breaker AS b,
       LATERAL (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - b.published_us AS since_us) AS c,
       LATERAL (SELECT greatest(0, c.since_us) AS age_us, c.since_us < 0 AS stepped_back) AS n
 WHERE n.age_us <= 3600000000;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA call_budget FROM PUBLIC;
GRANT EXECUTE ON FUNCTION call_budget.call_budget_contract() TO PUBLIC;
