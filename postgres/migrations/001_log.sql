-- The log of everything that happened, and what is written together with it.
-- Whoever appends holds one advisory lock until its commit is complete, so that
-- positions have no gap and become visible in their order.

CREATE TABLE log (
	epoch text NOT NULL,
	one   boolean PRIMARY KEY DEFAULT true CHECK (one)
);

-- No unique index beside the key: the log may later be partitioned by position.
CREATE TABLE events (
	position    bigint PRIMARY KEY,
	client      text COLLATE "C" NOT NULL,
	stream      text COLLATE "C" NOT NULL,
	revision    bigint NOT NULL,
	event_id    uuid NOT NULL,
	type        text COLLATE "C" NOT NULL,
	version     integer NOT NULL,
	data        bytea NOT NULL,
	meta        bytea NOT NULL,
	recorded_at timestamptz NOT NULL
);
CREATE INDEX events_client ON events (client, position);
CREATE INDEX events_stream ON events (stream, revision);

-- The last revision of each stream.
CREATE TABLE streams (
	stream   text COLLATE "C" PRIMARY KEY,
	client   text COLLATE "C" NOT NULL,
	revision bigint NOT NULL
) WITH (fillfactor = 70);

-- The position of each client's last event, as text that orders as the log does.
CREATE TABLE heads (
	client   text COLLATE "C" PRIMARY KEY,
	position text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION position_text("position" bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
	$$ SELECT lpad(to_hex($1), 16, '0') $$;

-- append_one appends events to one stream that is at the revision expected, or
-- does nothing when actual, the stream's revision, is another. The first of them
-- stands at position base + 1.
CREATE FUNCTION append_one(
	a_stream text, a_expected bigint, clients text[], ids uuid[], types text[], versions integer[],
	datas bytea[], metas bytea[], times timestamptz[], OUT base bigint, OUT actual bigint
) LANGUAGE plpgsql AS $$
BEGIN
	-- Each statement takes a snapshot of its own, those below after the lock.
	PERFORM pg_advisory_xact_lock(hashtextextended('kindred log', 0));
	actual := coalesce((SELECT s.revision FROM public.streams s WHERE s.stream = a_stream), -1);
	base := coalesce((SELECT max(e.position) FROM public.events e), 0);
	IF actual <> a_expected THEN
		RETURN;
	END IF;
	INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
	SELECT base + e.n, e.client, a_stream, a_expected + e.n, e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
	FROM unnest(clients, ids, types, versions, datas, metas, times)
		WITH ORDINALITY AS e (client, event_id, type, version, data, meta, recorded_at, n);
	INSERT INTO public.streams AS s (stream, client, revision)
	VALUES (a_stream, clients[1], a_expected + cardinality(ids))
	ON CONFLICT (stream) DO UPDATE SET revision = excluded.revision;
	INSERT INTO public.heads AS h (client, position)
	SELECT e.client, public.position_text(base + max(e.n))
	FROM unnest(clients) WITH ORDINALITY AS e (client, n) WHERE e.client <> '' GROUP BY e.client
	ON CONFLICT (client) DO UPDATE SET position = excluded.position;
	PERFORM pg_notify('kindred_log', '');
END $$;

-- append_batch does the same for many requests, each for another stream, and all
-- in one commit. Requests are told by their place in a_streams, owners (clients),
-- expected and sizes (in events); event n belongs to request of[n] and is its nth[n]th. actual holds
-- the revision that each request met; the events of those that met the one they
-- expected stand from base + 1 on, in the order of the requests.
CREATE FUNCTION append_batch(
	a_streams text[], owners text[], expected bigint[], sizes integer[],
	of integer[], nth integer[], clients text[], ids uuid[], types text[], versions integer[],
	datas bytea[], metas bytea[], times timestamptz[], OUT base bigint, OUT actual bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('kindred log', 0));
	base := coalesce((SELECT max(e.position) FROM public.events e), 0);
	-- Not a join: its plan would be made, and kept, while the table is small.
	actual := ARRAY(
		SELECT coalesce((SELECT s.revision FROM public.streams s WHERE s.stream = r.stream), -1)
		FROM unnest(a_streams) WITH ORDINALITY AS r (stream, n) ORDER BY r.n);
	WITH added AS (
		INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
		SELECT base + row_number() OVER (ORDER BY e.n), e.client, a_streams[e.request], expected[e.request] + e.nth,
			e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
		FROM unnest(of, nth, clients, ids, types, versions, datas, metas, times)
			WITH ORDINALITY AS e (request, nth, client, event_id, type, version, data, meta, recorded_at, n)
		WHERE actual[e.request] = expected[e.request]
		RETURNING client, position
	)
	INSERT INTO public.heads AS h (client, position)
	SELECT a.client, public.position_text(max(a.position)) FROM added a WHERE a.client <> '' GROUP BY a.client
	ON CONFLICT (client) DO UPDATE SET position = excluded.position;
	INSERT INTO public.streams (stream, client, revision)
	SELECT r.stream, r.owner, r.size - 1
	FROM unnest(a_streams, owners, expected, sizes, actual) AS r (stream, owner, expected, size, actual)
	WHERE r.expected = -1 AND r.actual = -1;
	INSERT INTO public.streams AS s (stream, client, revision)
	SELECT r.stream, r.owner, r.expected + r.size
	FROM unnest(a_streams, owners, expected, sizes, actual) AS r (stream, owner, expected, size, actual)
	WHERE r.expected >= 0 AND r.actual = r.expected
	ON CONFLICT (stream) DO UPDATE SET revision = excluded.revision;
	IF EXISTS (SELECT FROM unnest(expected, actual) AS r (expected, actual) WHERE r.actual = r.expected) THEN
		PERFORM pg_notify('kindred_log', '');
	END IF;
END $$;
