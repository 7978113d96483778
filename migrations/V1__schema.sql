-- The tables of call-budget: what a vendor's limit is, who may go first inside it, and who is waiting.
--
-- Every time is a bigint of microseconds on this server's clock since 1970, named `_us`; a duration is a bigint of
-- microseconds too. Floors are parts per million. Constraint names are sentences: they are what a person reads when
-- a setting is refused.
--
-- The tables are granted to nobody. Callers and operators come in through functions (`call-budget access`).

-- What a single setting may be. Domains and not CHECKs of the tables: an UPDATE of a hot row would prepare and run each of
-- those again, although no setting changes in it.
CREATE DOMAIN call_budget.name AS text
    CONSTRAINT "a name has 1 to 100 characters and no control character"
        CHECK (char_length(VALUE) BETWEEN 1 AND 100 AND VALUE !~ '[[:cntrl:]]');
CREATE DOMAIN call_budget.limit_units AS integer
    CONSTRAINT "the limit is between 1 and 1,000,000 units" CHECK (VALUE BETWEEN 1 AND 1000000);
CREATE DOMAIN call_budget.max_cost AS integer
    CONSTRAINT "the largest cost is at least 1" CHECK (VALUE >= 1);
CREATE DOMAIN call_budget.window_us AS bigint
    CONSTRAINT "the window is between 1 ms and 1 day" CHECK (VALUE BETWEEN 1000 AND 86400000000);
CREATE DOMAIN call_budget.send_window_us AS bigint
    CONSTRAINT "the send window is between 1 ms and 60 s" CHECK (VALUE BETWEEN 1000 AND 60000000);
CREATE DOMAIN call_budget.arrival_jitter_us AS bigint
    CONSTRAINT "the arrival jitter is between 0 and 60 s" CHECK (VALUE BETWEEN 0 AND 60000000);
CREATE DOMAIN call_budget.lookahead_us AS bigint
    CONSTRAINT "the lookahead is between 1 ms and 5 s" CHECK (VALUE BETWEEN 1000 AND 5000000);
CREATE DOMAIN call_budget.interval_us AS bigint
    CONSTRAINT "the interval is between 1 us and 10 days" CHECK (VALUE BETWEEN 1 AND 864000000000);
CREATE DOMAIN call_budget.priority AS integer
    CONSTRAINT "the priority is between 0 and 1000" CHECK (VALUE BETWEEN 0 AND 1000);
CREATE DOMAIN call_budget.floor_ppm AS integer
    CONSTRAINT "the floor is 0 or between 0.001 and 1" CHECK (VALUE = 0 OR VALUE BETWEEN 1000 AND 1000000);

-- One limit that a vendor enforces, shared by every process: the settings, what seldom changes, and the lock. Everything
-- about a budget is read and written under the lock of this row.
CREATE TABLE call_budget.call_budget (
    name                call_budget.name              NOT NULL,
    -- Settings: what the vendor counts, and how far a call may land from its slot.
    limit_units         call_budget.limit_units       NOT NULL,
    window_us           call_budget.window_us         NOT NULL,
    send_window_us      call_budget.send_window_us    NOT NULL,
    arrival_jitter_us   call_budget.arrival_jitter_us NOT NULL,
    max_cost            call_budget.max_cost          NOT NULL,
    interval_us         call_budget.interval_us       NOT NULL,
    lookahead_us        call_budget.lookahead_us      NOT NULL,
    version             bigint  NOT NULL DEFAULT 1,
    paused              boolean NOT NULL DEFAULT false,
    -- Nothing starts before these. Zero means long ago.
    blocked_until_us    bigint  NOT NULL DEFAULT 0,
    fenced_until_us     bigint  NOT NULL DEFAULT 0,
    fences              bigint  NOT NULL DEFAULT 0,
    -- The widest promise that a forgotten commit can have made since the last fence.
    widest_lookahead_us bigint  NOT NULL,
    widest_max_cost     integer NOT NULL,
    -- Who said stop, and why: for people, no rule reads them.
    paused_reason       text,
    paused_by           text,
    blocked_reason      text,
    blocked_by          text,
    CONSTRAINT "a budget has one row" PRIMARY KEY (name),
    -- The bound that makes the limit true. A call lands within send window + jitter after its slot, and a cost counts
    -- at one instant, so a closed window of any kind holds at most floor((T + w + j) / I) + C units. The thousandth
    -- allows for clocks that do not tick alike.
    CONSTRAINT "the interval keeps every window within the limit, max_cost too"
        CHECK ((limit_units - max_cost + 1) * interval_us
             > (window_us + send_window_us + arrival_jitter_us)
             + (window_us + send_window_us + arrival_jitter_us) / 1000),
    -- Keeps all arithmetic inside a bigint.
    CONSTRAINT "the largest cost takes at most 10 days"
        CHECK (max_cost * interval_us <= 864000000000)
) WITH (fillfactor = 50, vacuum_truncate = off);

-- The hot row of a budget, apart from its settings so that the one UPDATE of every call writes little and checks nothing.
CREATE TABLE call_budget.call_budget_schedule (
    budget       text    NOT NULL,
    last_slot_us bigint  NOT NULL DEFAULT 0,
    last_cost    integer NOT NULL DEFAULT 1,
    last_seen_us bigint  NOT NULL DEFAULT 0,
    -- Lanes that want something, alive or not. With none, a call need not look at the queue.
    waiting      bigint  NOT NULL DEFAULT 0,
    CONSTRAINT "a budget has one schedule" PRIMARY KEY (budget)
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, vacuum_truncate = off);

-- Who may go first inside a budget: priority 0 is most important; the floor is a share guaranteed while there is demand.
CREATE TABLE call_budget.call_budget_class (
    budget       call_budget.name      NOT NULL,
    name         call_budget.name      NOT NULL,
    priority     call_budget.priority  NOT NULL,
    floor_ppm    call_budget.floor_ppm NOT NULL DEFAULT 0,
    due_us       bigint  NOT NULL DEFAULT 0,
    last_slot_us bigint  NOT NULL DEFAULT 0,
    granted      bigint  NOT NULL DEFAULT 0,
    CONSTRAINT "a class has one row in its budget" PRIMARY KEY (budget, name)
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, vacuum_truncate = off);

-- One row a lane: what it still wants and when it is to come back. units = 0: it waits for nothing, the row is kept to
-- be updated in place. Unlogged: whatever empties it empties the marker below too, and then the queue is forgotten anyway. No
-- foreign key: checking one would lock the hot row. No index on a column that changes.
CREATE UNLOGGED TABLE call_budget.call_budget_waiter (
    budget         text    NOT NULL,
    lane           bigint  NOT NULL,
    class          text    NOT NULL,
    units          bigint  NOT NULL,
    place_us       bigint  NOT NULL,
    appointment_us bigint  NOT NULL,
    CONSTRAINT "a lane has one row in its budget" PRIMARY KEY (budget, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, vacuum_truncate = off);

-- "Nothing was forgotten since I was written." Whatever makes a server forget commits (a crash, a promotion, a restore)
-- empties an unlogged table or changes what this row says of the server it was written on. Never make it logged.
CREATE UNLOGGED TABLE call_budget.call_budget_marker (
    budget     text        NOT NULL,
    started_at timestamptz NOT NULL,
    timeline   bigint      NOT NULL,
    table_oid  oid         NOT NULL,
    -- Holds the database's oid: a database made from a template brings the row along, under another path.
    file_path  text        NOT NULL,
    CONSTRAINT "a budget has one marker" PRIMARY KEY (budget)
) WITH (fillfactor = 50);

-- What a client and this schema agree on. Raised only when a client of the release before could misread an answer;
-- whatever migrations come on top, an equal number means that they work together.
CREATE FUNCTION call_budget.call_budget_contract() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 1';

-- Floors are guarantees: together they cannot promise more than there is. Deferred, so that two floors can be swapped
-- in one transaction; under the budget's lock, so that two transactions cannot pass each other.
CREATE FUNCTION call_budget.call_budget_check_floors() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    total bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- The snapshot would be older than the lock, and two transactions could pass each other after all.
        RAISE EXCEPTION 'changing a class needs READ COMMITTED, this transaction is %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'CB002', HINT = 'run "call-budget access ROLE --as admin" or set default_transaction_isolation';
    END IF;
    PERFORM FROM call_budget.call_budget AS b WHERE b.name = NEW.budget FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no budget "%": a class belongs to a budget, set the budget first', NEW.budget
            USING ERRCODE = 'CB003';
    END IF;
    SELECT sum(c.floor_ppm) INTO total FROM call_budget.call_budget_class AS c WHERE c.budget = NEW.budget;
    IF total > 1000000 THEN
        RAISE EXCEPTION 'the floors of budget "%" sum to %, more than 1: lower a floor first',
            NEW.budget, round(total / 1000000.0, 6)
            USING ERRCODE = 'CB004', CONSTRAINT = 'the floors of a budget sum to at most 1';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER "the floors of a budget sum to at most 1"
    AFTER INSERT OR UPDATE OF budget, floor_ppm ON call_budget.call_budget_class
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION call_budget.call_budget_check_floors();

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA call_budget FROM PUBLIC;
GRANT EXECUTE ON FUNCTION call_budget.call_budget_contract() TO PUBLIC;
