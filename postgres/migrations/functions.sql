-- Edition 2.
-- The functions of the schema. This file runs as a whole whenever it has changed, after
-- the migrations; each change counts the edition up, and a version with an earlier one
-- leaves a later one alone. A process of the version before may still call what stands
-- here: a function whose parameters or meaning change gets another name.

-- Positions as text that orders as the log does.
CREATE OR REPLACE FUNCTION position_text("position" bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
	$$ SELECT lpad(to_hex($1), 16, '0') $$;

-- Appends notify nobody: a commit that notifies holds a lock of the whole server while
-- it is flushed. The process that appends notifies afterwards, once for many commits.

-- append_stream appends events to one stream that is at the revision expected, or
-- does nothing when actual, the stream's revision, is another. The first of them
-- stands at position base + 1. An optimistic append takes for granted that what is to be
-- new is new, and fails with unique_violation where it is not.
CREATE OR REPLACE FUNCTION append_stream(
	a_stream text, expected bigint, optimistic boolean, clients text[], ids uuid[], types text[], versions integer[],
	datas bytea[], metas bytea[], times timestamptz[], OUT base bigint, OUT actual bigint
) LANGUAGE plpgsql AS $$
BEGIN
	-- Each statement takes a snapshot of its own, those below after the lock.
	PERFORM pg_advisory_xact_lock(hashtextextended('kindred log', 0));
	SELECT coalesce((SELECT e.position FROM public.events e ORDER BY e.position DESC LIMIT 1), 0),
		CASE WHEN optimistic AND expected = -1 THEN -1 ELSE coalesce((SELECT e.revision FROM public.events e
			WHERE hashtextextended(e.stream, 0) = hashtextextended(a_stream, 0) AND e.stream = a_stream
			ORDER BY e.revision DESC LIMIT 1), -1) END
	INTO base, actual;
	IF actual <> expected THEN
		RETURN;
	END IF;
	IF cardinality(ids) = 1 THEN
		-- The most frequent case.
		INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
		VALUES (base + 1, clients[1], a_stream, expected + 1, ids[1], types[1], versions[1], datas[1], metas[1], times[1]);
		INSERT INTO public.heads (client, position) SELECT clients[1], public.position_text(base + 1) WHERE clients[1] <> ''
		ON CONFLICT (client) DO UPDATE SET position = excluded.position;
		RETURN;
	END IF;
	INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
	SELECT base + e.n, e.client, a_stream, expected + e.n, e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
	FROM unnest(clients, ids, types, versions, datas, metas, times)
		WITH ORDINALITY AS e (client, event_id, type, version, data, meta, recorded_at, n);
	INSERT INTO public.heads AS h (client, position)
	SELECT e.client, public.position_text(base + max(e.n))
	FROM unnest(clients) WITH ORDINALITY AS e (client, n) WHERE e.client <> '' GROUP BY e.client
	ON CONFLICT (client) DO UPDATE SET position = excluded.position;
END $$;

-- append_streams does the same for many requests, each for another stream, and all
-- in one commit. Requests are told by their place in a_streams and expected; event n
-- belongs to request of[n] and is its nth[n]th, key n to request k_of[n]. actual holds
-- the revision that each request met; the events of those that met the one they
-- expected stand from base + 1 on, in the order of the requests. A request of which a
-- subject had a key already, or had one once, or whose lookup another subject has, is
-- not appended, and actual is -2; its other keys may have been made. An empty lookup is none.
CREATE OR REPLACE FUNCTION append_streams(
	a_streams text[], expected bigint[], optimistic boolean,
	of integer[], nth integer[], clients text[], ids uuid[], types text[], versions integer[],
	datas bytea[], metas bytea[], times timestamptz[],
	k_of integer[], k_clients text[], k_subjects text[], k_ids text[], k_roots text[], k_wrapped bytea[], k_lookups bytea[],
	OUT base bigint, OUT actual bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
	request integer;
	made    bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('kindred log', 0));
	SELECT coalesce((SELECT e.position FROM public.events e ORDER BY e.position DESC LIMIT 1), 0) INTO base;
	IF optimistic AND -1 = ALL (expected) THEN
		actual := expected;
	ELSE
		-- Not a join: its plan would be made, and kept, while the table is small.
		SELECT ARRAY(
			SELECT CASE WHEN optimistic AND r.expected = -1 THEN -1 ELSE coalesce((SELECT e.revision FROM public.events e
				WHERE hashtextextended(e.stream, 0) = hashtextextended(r.stream, 0) AND e.stream = r.stream
				ORDER BY e.revision DESC LIMIT 1), -1) END
			FROM unnest(a_streams, append_streams.expected) WITH ORDINALITY AS r (stream, expected, n) ORDER BY r.n)
		INTO actual;
	END IF;
	IF cardinality(k_of) > 0 AND optimistic THEN
		-- In one order, so that nobody who makes keys waits for another who waits.
		INSERT INTO public.subject_keys (client, subject, id, client_key, wrapped, lookup)
		SELECT k.client, k.subject, k.id, k.root, k.wrapped, nullif(k.lookup, '')
		FROM unnest(k_of, k_clients, k_subjects, k_ids, k_roots, k_wrapped, k_lookups)
			AS k (request, client, subject, id, root, wrapped, lookup)
		WHERE actual[k.request] = expected[k.request]
		ORDER BY k.lookup, k.client COLLATE "C", k.subject COLLATE "C";
	ELSIF cardinality(k_of) > 0 THEN
		INSERT INTO public.subject_keys (client, subject, id, client_key, wrapped, lookup)
		SELECT k.client, k.subject, k.id, k.root, k.wrapped, nullif(k.lookup, '')
		FROM unnest(k_of, k_clients, k_subjects, k_ids, k_roots, k_wrapped, k_lookups)
			AS k (request, client, subject, id, root, wrapped, lookup)
		WHERE actual[k.request] = expected[k.request]
		ORDER BY k.lookup, k.client COLLATE "C", k.subject COLLATE "C"
		ON CONFLICT DO NOTHING;
		GET DIAGNOSTICS made = ROW_COUNT;
		IF made < (SELECT count(*) FROM unnest(k_of) AS k (request) WHERE actual[k.request] = expected[k.request]) THEN
			FOR request IN
				SELECT DISTINCT k.request FROM unnest(k_of, k_clients, k_subjects, k_ids) AS k (request, client, subject, id)
				WHERE actual[k.request] = expected[k.request] AND k.id IS DISTINCT FROM
					(SELECT s.id FROM public.subject_keys s WHERE s.subject = k.subject AND s.client = k.client)
			LOOP
				actual[request] := -2;
			END LOOP;
		END IF;
	END IF;
	IF actual = expected AND -1 = ALL (expected) AND cardinality(ids) = cardinality(expected) THEN
		-- The most frequent case: the first event of each of so many new streams.
		INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
		SELECT base + e.n, e.client, e.stream, 0, e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
		FROM unnest(a_streams, clients, ids, types, versions, datas, metas, times)
			WITH ORDINALITY AS e (stream, client, event_id, type, version, data, meta, recorded_at, n);
		INSERT INTO public.heads AS h (client, position)
		SELECT e.client, public.position_text(base + max(e.n))
		FROM unnest(clients) WITH ORDINALITY AS e (client, n) WHERE e.client <> '' GROUP BY e.client
		ON CONFLICT (client) DO UPDATE SET position = excluded.position;
	ELSE
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
	END IF;
END $$;

-- No key comes to stand under an epoch that is over, however late its statement
-- comes: whoever ends an epoch locks its row against this one.
CREATE OR REPLACE FUNCTION check_epochs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	name text;
	last text;
BEGIN
	-- Nearly always all rows name one epoch.
	SELECT min(m.client_key), max(m.client_key) INTO name, last FROM made m WHERE m.client_key >= 'x';
	name := left(name, 17);
	last := left(last, 17);
	WHILE name IS NOT NULL LOOP
		PERFORM FROM public.epochs e WHERE e.id = name AND e.retired_at IS NULL FOR KEY SHARE;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'the epoch of a key is over' USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'subject_keys_epoch';
		END IF;
		EXIT WHEN name = last;
		SELECT left(min(m.client_key), 17) INTO name FROM made m WHERE m.client_key >= name || '0'; -- which is next after the slash
	END LOOP;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER subject_keys_epoch AFTER INSERT ON subject_keys
REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION check_epochs();

-- No key is made for a client whose own is destroyed, however late its statement comes:
-- whoever destroys that locks its row against this one.
CREATE OR REPLACE FUNCTION check_client_keys() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	destroyed boolean;
BEGIN
	SELECT bool_or(locked.wrapped = '') INTO destroyed FROM (
		SELECT c.wrapped FROM public.client_keys c
		WHERE c.client IN (SELECT m.client FROM made m WHERE m.wrapped IS NOT NULL) ORDER BY c.client FOR KEY SHARE
	) locked;
	IF destroyed THEN
		RAISE EXCEPTION 'the client of a key was deleted' USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'subject_keys_client';
	END IF;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER subject_keys_client AFTER INSERT ON subject_keys
REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION check_client_keys();

-- note_revocation notes what a client has revoked, or the client's own id where
-- most of its revocations are noted already.
CREATE OR REPLACE FUNCTION note_revocation(a_client text, a_subject text, a_revoked_at timestamptz, most integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM public.revocation_notes n WHERE n.client = a_client AND n.subject = a_subject) AND (
		SELECT count(*) FROM (
			SELECT FROM public.revocation_notes n
			WHERE n.client = a_client AND n.noted_at > now() - interval '25 hours' LIMIT most
		) noted) >= most THEN
		a_subject := a_client;
	END IF;
	INSERT INTO public.revocation_notes AS n (client, subject, revoked_at) VALUES (a_client, a_subject, a_revoked_at)
	ON CONFLICT (client, subject) DO UPDATE SET noted_at = clock_timestamp()
	-- Pollers look back for a minute longer than they need to.
	WHERE n.noted_at < clock_timestamp() - interval '1 minute';
END $$;

-- throttle counts an attempt by each subject, unless one has to wait: then it counts
-- for none, as others of those share that subject, and throttle returns for how long;
-- 0: none. After its free attempts, each opens a pause that doubles from a second to
-- the longest; a try within it does not prolong it. 15 minutes of quiet are forgiven.
CREATE OR REPLACE FUNCTION throttle(subjects bytea[], free integer[], longest interval[]) RETURNS interval
LANGUAGE plpgsql AS $$
DECLARE
	quiet CONSTANT interval := interval '15 minutes';
	made integer;
	paused timestamptz;
	at timestamptz;
	over integer;
	wait interval := interval '0';
BEGIN
	FOR i IN 1 .. cardinality(subjects) LOOP
		INSERT INTO public.throttles (subject, attempts, until) VALUES (subjects[i], 0, clock_timestamp()) ON CONFLICT DO NOTHING;
		SELECT t.attempts, t.until INTO made, paused FROM public.throttles t WHERE t.subject = subjects[i] FOR UPDATE;
		at := clock_timestamp();
		CONTINUE WHEN made IS NULL; -- forgotten just now
		IF paused > at AND paused <= at + longest[i] THEN -- else the clock was set back
			wait := paused - at;
			PERFORM public.unthrottle(subjects[1:i - 1]);
			EXIT;
		END IF;
		made := CASE WHEN paused < at - quiet THEN 0 ELSE made END + 1;
		over := made - free[i];
		UPDATE public.throttles t SET attempts = made,
			until = at + CASE WHEN over > 0 THEN least(longest[i], interval '1 second' * 2 ^ least(over - 1, 20)) ELSE interval '0' END
		WHERE t.subject = subjects[i];
	END LOOP;
	-- At last: who holds what is old and waits for a subject of another would be waited
	-- for by that one.
	DELETE FROM public.throttles WHERE ctid = ANY (ARRAY (
		SELECT t.ctid FROM public.throttles t WHERE t.until < clock_timestamp() - quiet ORDER BY t.until LIMIT 16 FOR UPDATE SKIP LOCKED));
	RETURN wait;
END $$;

-- unthrottle takes back an attempt by each subject, and its pause.
CREATE OR REPLACE FUNCTION unthrottle(subjects bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. cardinality(subjects) LOOP -- in the order in which throttle locks them
		UPDATE public.throttles t SET attempts = greatest(0, t.attempts - 1), until = least(t.until, clock_timestamp())
		WHERE t.subject = subjects[i];
	END LOOP;
END $$;

-- forget_throttles takes back all attempts by each subject.
CREATE OR REPLACE FUNCTION forget_throttles(subjects bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. cardinality(subjects) LOOP -- in the order in which throttle locks them
		DELETE FROM public.throttles t WHERE t.subject = subjects[i];
	END LOOP;
END $$;
