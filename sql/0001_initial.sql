-- The first schema. Migrations go forward only: a released file is never edited (its SHA-256 is
-- kept in the table migrations), changes go into a new file. Each file runs in one transaction.
-- Times are wall milliseconds since 1970, 0 means "not yet" or "never". Ids are prefix and ULID:
-- their order (COLLATE "C") is the order of creation, so the primary key serves the paging.

CREATE TABLE keys (
    id          text COLLATE "C" PRIMARY KEY,
    name        text NOT NULL CHECK (length(name) <= 80),
    hash        bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    scopes      bigint NOT NULL,
    created_ms  bigint NOT NULL,
    expires_ms  bigint NOT NULL,
    revoked_ms  bigint NOT NULL DEFAULT 0
);

CREATE TABLE invites (
    id          text COLLATE "C" PRIMARY KEY,
    hash        bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    group_name  text NOT NULL CHECK (length(group_name) <= 40),
    max_uses    bigint NOT NULL CHECK (max_uses > 0),
    uses        bigint NOT NULL DEFAULT 0 CHECK (uses >= 0 AND uses <= max_uses),
    created_ms  bigint NOT NULL,
    expires_ms  bigint NOT NULL
);

CREATE TABLE volunteers (
    id              text COLLATE "C" PRIMARY KEY,
    public_key      bytea NOT NULL UNIQUE CHECK (octet_length(public_key) = 32),
    invite          text COLLATE "C" NOT NULL REFERENCES invites,
    label           text NOT NULL CHECK (length(label) <= 64),
    group_name      text NOT NULL,
    state           text NOT NULL CHECK (state IN ('active', 'revoked')),
    cpu             text NOT NULL,
    threads         bigint NOT NULL,
    memory_bytes    bigint NOT NULL,
    backend         text NOT NULL,
    agent_version   text NOT NULL,
    created_ms      bigint NOT NULL,
    last_seen_ms    bigint NOT NULL,
    updates_applied bigint NOT NULL DEFAULT 0,
    samples         bigint NOT NULL DEFAULT 0,
    last_end_reason text NOT NULL DEFAULT ''
);

CREATE TABLE sessions (
    id          text COLLATE "C" PRIMARY KEY,
    volunteer   text COLLATE "C" NOT NULL REFERENCES volunteers,
    address     text NOT NULL,
    opened_ms   bigint NOT NULL,
    closed_ms   bigint NOT NULL DEFAULT 0,
    end_reason  text NOT NULL DEFAULT ''
);
CREATE INDEX sessions_volunteer ON sessions (volunteer, opened_ms);

CREATE TABLE artifacts (
    id          text COLLATE "C" PRIMARY KEY,
    kind        text NOT NULL CHECK (kind IN ('dataset_text', 'dataset_idx')),
    filename    text NOT NULL CHECK (length(filename) <= 128),
    size_bytes  bigint NOT NULL CHECK (size_bytes >= 0),
    sha256      bytea NOT NULL CHECK (octet_length(sha256) = 32),
    state       text NOT NULL CHECK (state IN ('uploading', 'ready', 'rejected')),
    reason      text NOT NULL DEFAULT '',
    items       bigint NOT NULL DEFAULT 0 CHECK (items >= 0),
    created_ms  bigint NOT NULL
);
CREATE INDEX artifacts_content ON artifacts (sha256, kind) WHERE state = 'ready';

-- spec and artifacts stay text: the bytes that were submitted are the bytes that agents get.
CREATE TABLE jobs (
    id          text COLLATE "C" PRIMARY KEY,
    spec        text NOT NULL,
    artifacts   text NOT NULL,
    blocks      bigint NOT NULL CHECK (blocks >= 0),
    state       text NOT NULL
                CHECK (state IN ('queued', 'running', 'completed', 'cancelled', 'failed')),
    reason      text NOT NULL DEFAULT '',
    created_ms  bigint NOT NULL,
    started_ms  bigint NOT NULL DEFAULT 0,
    finished_ms bigint NOT NULL DEFAULT 0
);
CREATE INDEX jobs_state ON jobs (state, id);

CREATE TABLE leases (
    id            text COLLATE "C" PRIMARY KEY,
    job           text COLLATE "C" NOT NULL REFERENCES jobs,
    volunteer     text COLLATE "C" NOT NULL REFERENCES volunteers,
    kind          text NOT NULL CHECK (kind IN ('train', 'evaluate')),
    state         text NOT NULL
                  CHECK (state IN ('granted', 'applied', 'stale', 'refused', 'expired', 'done')),
    base_version  bigint NOT NULL,
    version       bigint NOT NULL,
    steps         bigint NOT NULL,
    samples       bigint NOT NULL,
    payload_bytes bigint NOT NULL,
    granted_ms    bigint NOT NULL,
    finished_ms   bigint NOT NULL
);
CREATE INDEX leases_job ON leases (job, granted_ms);
CREATE INDEX leases_volunteer ON leases (volunteer, granted_ms);

-- One row per applied update and one per evaluation, nats; NULL: not measured.
CREATE TABLE points (
    job           text COLLATE "C" NOT NULL REFERENCES jobs,
    held_out      boolean NOT NULL,
    version       bigint NOT NULL,
    at_ms         bigint NOT NULL,
    samples       bigint NOT NULL,
    loss          double precision,
    loss_smoothed double precision,
    accuracy      double precision,
    PRIMARY KEY (job, held_out, version)
);

CREATE TABLE events (
    seq       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type      text NOT NULL,
    severity  text NOT NULL CHECK (severity IN ('info', 'warn', 'error')),
    subject   text NOT NULL,
    text      text NOT NULL,
    at_ms     bigint NOT NULL
);
CREATE INDEX events_subject ON events (subject, seq);

-- Answers of requests that create, kept for a day in the transaction of their effect.
CREATE TABLE idempotency (
    scope       text NOT NULL,
    key         text NOT NULL CHECK (length(key) <= 128),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    status      integer NOT NULL,
    body        text NOT NULL,
    created_ms  bigint NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_created ON idempotency (created_ms);

-- How far each coordinator's queue is written: updated in the transaction of the rows, so that a
-- batch whose COMMIT was not answered is neither lost nor written twice.
CREATE TABLE writers (
    id      text COLLATE "C" PRIMARY KEY,
    seq     bigint NOT NULL,
    seen_ms bigint NOT NULL
);
